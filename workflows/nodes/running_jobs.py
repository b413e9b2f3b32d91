"""The jobs on a node: who holds a place on it, telling them, ending what none of them claims."""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event
from workflows.contracts.nodes import NodeRequest
from workflows.effects.nodes import (
    BillOrphanedRuns,
    EndOrphanedRuns,
    FindNodeRuns,
    ListRuns,
    NodeRunsFound,
    NotifyJobs,
    bill_strays,
    end_strays,
    find_node_runs,
    list_runs,
    tell_jobs,
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

    async def tell(self, what: str, reason: str = "", *, ended_at: datetime | None = None) -> None:
        """A job that cannot be told looks by itself: the others do not wait for it."""
        node_id = self._request.node_id
        command = NotifyJobs(node_id=node_id, what=what, reason=reason, ended_at=ended_at)
        try:
            await tell_jobs(command)
        except EFFECT_FAILED as failure:
            await self._record_event(Event(type="node.jobs-untold", message=cause_of(failure)[1]))

    async def end_orphans(self) -> None:
        """End, and bill, what runs here and no live job claims."""
        there = (await list_runs(ListRuns(node=self._location.address()))).run_ids
        live = (await self.held()).run_ids
        ended = await end_strays(
            EndOrphanedRuns(node=self._location.address(), among=there, live=live)
        )
        if ended.runs:
            await bill_strays(BillOrphanedRuns(runs=ended.runs))
            names = ", ".join(run.run_id for run in ended.runs)
            await self._record_event(
                Event(type="node.strays-ended", message=f"no live job claimed {names}")
            )

    async def drain(self, is_gone: Callable[[], bool]) -> None:
        """All of them end first; where they cannot be ended, or the node is gone, they leave."""
        held = await self.held()
        deadline = workflow.now() + DRAIN_LIMIT
        while (left := await self.held()).job_ids and workflow.now() < deadline:
            # Again and again: one may have been deaf, or started again by the sweep meanwhile.
            reason = f"node {self._request.name} is being removed"
            await self.tell("gone" if is_gone() else "removed", reason)
            await self.wait_for_their_end()
        if unseen := held.run_ids if is_gone() else left.run_ids:
            message = f"nobody has seen these end, they may run on there: {', '.join(unseen)}"
            await self._record_event(Event(type="node.runs-left", message=message))

    async def wait_for_their_end(self) -> None:
        """For a minute."""
        again_at = workflow.now() + NOTIFY_AGAIN_INTERVAL
        while (await self.held()).job_ids and workflow.now() < again_at:
            await workflow.sleep(DRAIN_INTERVAL, summary="jobs end")
