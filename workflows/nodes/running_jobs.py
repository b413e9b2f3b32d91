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

DRAIN_INTERVAL = timedelta(seconds=5)
DRAIN_LIMIT = timedelta(minutes=30)
NOTIFY_AGAIN_INTERVAL = timedelta(minutes=1)


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
        node_id = self._request.node_id
        command = NotifyJobs(node_id=node_id, notice=notice, reason=reason, ended_at=ended_at)
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

    async def drain(self, is_gone: Callable[[], bool]) -> None:
        """Wait until all jobs have ended on the node, up to the limit.

        is_gone: whether the node or its machine is gone, so that runs there cannot be ended.
        """
        held = await self.held()
        deadline = workflow.now() + DRAIN_LIMIT
        while (left := await self.held()).job_ids and workflow.now() < deadline:
            # Repeated, because a signal may be lost, or a job may have started again meanwhile.
            reason = f"node {self._request.name} is being removed"
            gone = is_gone()
            notice = NodeNotice.REMOVED_UNREACHABLE if gone else NodeNotice.REMOVED
            await self.notify(notice, reason)
            await self.wait_for_end()
        if unconfirmed := held.run_ids if is_gone() else left.run_ids:
            message = (
                f"the end of {', '.join(unconfirmed)} could not be confirmed; they may still run"
            )
            await self._record_event(Event(type=NodeEvent.RUNS_LEFT, message=message))

    async def wait_for_end(self) -> None:
        """Wait until no live job is on the node, for a minute at most."""
        again_at = workflow.now() + NOTIFY_AGAIN_INTERVAL
        while (await self.held()).job_ids and workflow.now() < again_at:
            await workflow.sleep(DRAIN_INTERVAL, summary="drain")
