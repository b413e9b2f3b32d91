"""The upkeep of a node: orphaned runs are ended, and its hardware is inspected again."""

from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.hosts.inspection import Inspection
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.nodes.urgent import UrgentMessages
from workflows.primitives.failures import EFFECT_FAILED, cause_of

TIDY_INTERVAL = timedelta(hours=1)


class Upkeep:
    """The upkeep of one node, at an interval beside its watch; urgent messages interrupt it.

    tidy_at: when the node is tidied next; None: one interval after the start of its watch.
    """

    def __init__(
        self,
        steps: NodeSteps,
        inspection: Inspection,
        running_jobs: RunningJobs,
        urgent: UrgentMessages,
        tidy_at: datetime | None,
    ) -> None:
        self._steps = steps
        self._inspection = inspection
        self._running_jobs = running_jobs
        self._urgent = urgent
        self.tidy_at = tidy_at

    def due_at(self) -> datetime:
        """When the node is tidied next, from now on if that was not known."""
        if self.tidy_at is None:
            self.tidy_at = workflow.now() + (self._running_jobs.end_interval or TIDY_INTERVAL)
        return self.tidy_at

    async def tidy(self) -> None:
        """End orphaned runs, and inspect the node again if no job runs there."""
        try:
            await self.end_orphans()
        except EFFECT_FAILED as failure:
            await self.leave_orphans(cause_of(failure)[1])
            return
        try:
            if not (await self._running_jobs.held()).run_ids:
                await self.inspect()
        except EFFECT_FAILED as failure:
            workflow.logger.warning("the node is inspected later: %s", failure)

    async def end_orphans(self) -> bool:
        """End orphaned runs. False: a message interrupted that. Raises: the failure."""
        self.tidy_at = None  # From here the interval to the next look begins anew.
        return await self._urgent.interrupt(self._end_orphans())

    async def leave_orphans(self, why: str) -> None:
        """Record that orphaned runs could not be ended."""
        self._running_jobs.note_unlisted(why)
        await self._steps.record_event(Event(type=NodeEvent.ORPHANED_RUNS_LEFT, message=why))

    async def inspect(self) -> bool:
        """Inspect the node again. False: a message interrupted that. Raises: the failure."""
        return await self._urgent.interrupt(self._inspect())

    async def _end_orphans(self) -> None:
        """End orphaned runs; after some tries to end one of them, the node takes no more jobs."""
        if (given_up := await self._running_jobs.end_orphans()) is not None:
            await self._steps.withhold(given_up)

    async def _inspect(self) -> None:
        if missed := await self._inspection.again():
            await self._steps.withhold(missed)
