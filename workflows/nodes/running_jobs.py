"""The running jobs of a node: list them, notify them, drain them, and end orphaned runs."""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.nodes import NodeNotice, NodeRequest
from workflows.effects.nodes import (
    BillOrphanedRuns,
    EndOrphanedRuns,
    FindNodeRuns,
    ListRuns,
    NodeRunsFound,
    NotifyJobs,
    bill_orphaned_runs,
    end_orphaned_runs,
    find_node_runs,
    list_runs,
    notify_jobs,
)
from workflows.nodes.location import NodeLocation
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import wait_until

DRAIN_INTERVAL = timedelta(seconds=5)
DRAIN_LIMIT = timedelta(minutes=30)
NOTIFY_AGAIN_INTERVAL = timedelta(minutes=1)
NOTIFY_AGAIN_LIMIT = timedelta(minutes=10)
"""The first and the longest time between two notices to the jobs that a node waits for."""


class RunningJobs:
    """The jobs with live allocations on one node.

    record_event: writes an event that leaves the node's status as it is.
    """

    def __init__(
        self,
        request: NodeRequest,
        location: NodeLocation,
        record_event: EventWriter,
    ) -> None:
        self._request = request
        self._location = location
        self._record_event = record_event

    async def held(self) -> NodeRunsFound:
        """The runs and ids of the live jobs on the node."""
        return await find_node_runs(FindNodeRuns(node_id=self._request.node_id))

    async def notify(
        self, notice: NodeNotice, reason: str = "", *, ended_at: datetime | None = None
    ) -> None:
        """Send a node notice to every job. A job that cannot be notified polls by itself."""
        await self._send(self.notice(notice, reason, ended_at=ended_at))

    def notice(
        self, notice: NodeNotice, reason: str, *, ended_at: datetime | None = None
    ) -> NotifyJobs:
        """The command that sends a node notice to every job."""
        node_id = self._request.node_id
        return NotifyJobs(node_id=node_id, notice=notice, reason=reason, ended_at=ended_at)

    async def _send(self, command: NotifyJobs) -> None:
        try:
            await notify_jobs(command)
        except EFFECT_FAILED as failure:
            await self._record_event(
                Event(type=NodeEvent.JOBS_NOT_NOTIFIED, message=cause_of(failure)[1])
            )

    async def end_orphans(self) -> None:
        """End and bill the orphaned runs on the node."""
        there = (await list_runs(ListRuns(node=self._location.address()))).run_ids
        live = (await self.held()).run_ids
        ended = await end_orphaned_runs(
            EndOrphanedRuns(node=self._location.address(), among=there, live=live)
        )
        if ended.runs:
            await bill_orphaned_runs(BillOrphanedRuns(runs=ended.runs))
            names = ", ".join(run.run_id for run in ended.runs)
            await self._record_event(
                Event(type=NodeEvent.ORPHANED_RUNS_ENDED, message=f"no live job claimed {names}")
            )

    async def drain(self, notice: Callable[[], NotifyJobs], is_gone: Callable[[], bool]) -> None:
        """Notify the jobs until none of them is on the node, up to the limit.

        There is no limit after the end of the machine, because nobody else notifies the jobs of it.

        notice: what the jobs are notified of now, by the state of the node;
        is_gone: whether the machine has ended, so that nothing runs there.
        """
        held = await self.held()
        deadline, pause = workflow.now() + DRAIN_LIMIT, NOTIFY_AGAIN_INTERVAL
        while (left := await self.held()).job_ids:
            if workflow.now() >= deadline:
                if not is_gone():
                    break
                pause = min(2 * pause, NOTIFY_AGAIN_LIMIT)
            # Repeated, because a signal may be lost, or a job may have started again meanwhile.
            await self._send(current := notice())
            await self._wait_for_end(pause, current, notice)
        unconfirmed = held if notice().notice is NodeNotice.REMOVED_UNREACHABLE else left
        if unconfirmed.run_ids and not is_gone():
            names = ", ".join(unconfirmed.run_ids)
            message = f"the end of {names} could not be confirmed; they may still run"
            await self._record_event(Event(type=NodeEvent.RUNS_LEFT, message=message))

    async def _wait_for_end(
        self, limit: timedelta, current: NotifyJobs, notice: Callable[[], NotifyJobs]
    ) -> None:
        """Wait until no job is on the node, up to `limit`, or until there is another notice."""
        again_at = workflow.now() + limit
        interval = DRAIN_INTERVAL * (limit / NOTIFY_AGAIN_INTERVAL) ** 2
        while (await self.held()).job_ids and workflow.now() < again_at:
            if await wait_until(lambda: notice() != current, interval, "drain"):
                return
