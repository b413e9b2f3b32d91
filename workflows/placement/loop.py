"""The one loop that places waiting jobs."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.placement import PlacementRequest
from workflows.effects.placement import (
    NotifyPlacedJobs,
    PlanPlacements,
    notify_placed_jobs,
    plan_placements,
)
from workflows.primitives.waiting import wait_until

QUIET_INTERVAL = timedelta(seconds=30)
UNTOLD_INTERVAL = timedelta(seconds=5)


@workflow.defn(name="Placement")
class PlacementLoop:
    """Waits for a wake, places a batch, wakes the placed; for ever.

    A wake carries nothing. The interval covers one that was lost.
    """

    def __init__(self) -> None:
        self._woken = True
        self._rounds = 0
        self._placed = 0
        self._untold: tuple[str, ...] = ()

    @workflow.run
    async def run(self, request: PlacementRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            pause = UNTOLD_INTERVAL if self._untold else QUIET_INTERVAL
            await wait_until(lambda: self._woken, pause, "a wake may be lost")
            self._woken = False
            planned = await plan_placements(PlanPlacements())
            self._rounds += 1
            self._placed += planned.placed
            self._woken = self._woken or planned.more
            await self._announce()
        workflow.continue_as_new(request)

    async def _announce(self) -> None:
        more = True
        while more:
            announced = await notify_placed_jobs(NotifyPlacedJobs())
            more, self._untold = announced.more, announced.untold

    @workflow.signal(description="Something waits or something has become free.")
    def wake(self) -> None:
        self._woken = True

    @workflow.query(description="Rounds made and jobs placed by this run.")
    def totals(self) -> dict[str, int]:
        return {"rounds": self._rounds, "placed": self._placed}
