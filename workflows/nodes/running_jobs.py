"""The jobs on a node: who holds a place on it, telling them, ending what none of them claims."""

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
    """record_event: records an event that leaves the node's status as it is."""

    def __init__(
        self,
        request: NodeRequest,
        at: NodeLocation,
        record_event: EventWriter,
    ) -> None:
        self._request = request
        self._location = at
        self._record_event = record_event

    async def held(self) -> NodeRunsFound:
        """What live jobs hold here."""
        return await find_node_runs(FindNodeRuns(node_id=self._request.node_id))

    async def notify(
        self, notice: NodeNotice, reason: str = "", *, ended_at: datetime | None = None
    ) -> None:
        """Notify every job; one that cannot be signalled polls by itself, the others go on."""
        node_id = self._request.node_id
        command = NotifyJobs(node_id=node_id, notice=notice, reason=reason, ended_at=ended_at)
        try:
            await notify_jobs(command)
        except EFFECT_FAILED as failure:
            await self._record_event(
                Event(type=NodeEvent.JOBS_NOT_NOTIFIED, message=cause_of(failure)[1])
            )

    async def end_orphans(self) -> None:
        """End, and bill, what runs here and no live job claims."""
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
        """All of them end first; where they cannot be ended, or the node is gone, they leave."""
        held = await self.held()
        deadline = workflow.now() + DRAIN_LIMIT
        while (left := await self.held()).job_ids and workflow.now() < deadline:
            # Again and again: a signal may have been lost, or a job started again meanwhile.
            reason = f"node {self._request.name} is being removed"
            gone = is_gone()
            notice = NodeNotice.REMOVED_UNREACHABLE if gone else NodeNotice.REMOVED
            await self.notify(notice, reason)
            await self.wait_for_their_end()
        if unseen := held.run_ids if is_gone() else left.run_ids:
            message = f"nobody has seen these end, they may run on there: {', '.join(unseen)}"
            await self._record_event(Event(type=NodeEvent.RUNS_LEFT, message=message))

    async def wait_for_their_end(self) -> None:
        """For a minute."""
        again_at = workflow.now() + NOTIFY_AGAIN_INTERVAL
        while (await self.held()).job_ids and workflow.now() < again_at:
            await workflow.sleep(DRAIN_INTERVAL, summary="jobs end")
