"""The placement loop."""

from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.placement import PlacementRequest
from workflows.effects.placement import (
    NotifyPlacedJobs,
    PlanPlacements,
    notify_placed_jobs,
    plan_placements,
)
from workflows.primitives.failures import EFFECT_FAILED, UNSERVED, cause_of
from workflows.primitives.waiting import wait_until

QUIET_INTERVAL = timedelta(seconds=30)
NOTIFY_INTERVAL = timedelta(seconds=5)


@workflow.defn(name="Placement")
class PlacementLoop:
    """The single workflow that waits for a wake, runs planning rounds and notifies placed jobs.

    A wake carries no data, and the interval makes up for a lost wake.
    """

    def __init__(self) -> None:
        self._woken = True
        self._rounds = 0
        self._placed = 0
        self._not_notified: tuple[str, ...] = ()
        self._refused_at: datetime | None = None
        """When waiting jobs were shown that no process plans placements; None: one does."""

    @workflow.run
    async def run(self, request: PlacementRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            pause = NOTIFY_INTERVAL if self._not_notified else QUIET_INTERVAL
            await wait_until(lambda: self._woken, pause, "wake, or the interval")
            self._woken = False
            try:
                planned = await plan_placements(PlanPlacements())
            except EFFECT_FAILED as failure:
                await self._refuse(failure)
                continue
            await self._accept()
            self._rounds += 1
            self._placed += planned.placed
            self._woken = self._woken or planned.more
            await self._notify()
        workflow.continue_as_new(request)

    async def _notify(self) -> None:
        more = True
        while more:
            notified = await notify_placed_jobs(NotifyPlacedJobs())
            more, self._not_notified = notified.more, notified.untold

    async def _accept(self) -> None:
        """Take the refusal of `_refuse` back."""
        if self._refused_at is not None:
            await notify_placed_jobs(NotifyPlacedJobs(refused_before=self._refused_at))
            self._refused_at = None

    async def _refuse(self, failure: BaseException) -> None:
        """Show waiting jobs that no process plans placements. Raises: any other failure."""
        if cause_of(failure)[0] != UNSERVED:
            raise failure
        before, self._refused_at = self._refused_at, workflow.now()
        self._woken = True
        await notify_placed_jobs(NotifyPlacedJobs(has_no_planner=True, refused_before=before))

    @workflow.signal(description="A job waits, or capacity has become free.")
    def wake(self) -> None:
        self._woken = True

    @workflow.query(description="Planning rounds and placed jobs of this workflow run.")
    def totals(self) -> dict[str, int]:
        return {"rounds": self._rounds, "placed": self._placed}
