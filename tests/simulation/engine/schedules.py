"""Schedules of the server: an interval, one workflow at a time."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.engine.clock import Due, micros
from tests.simulation.engine.execution import Run
from workflows.contracts.base import Contract

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine


@dataclass(eq=False)
class Schedule:
    name: str
    workflow: str
    request: Contract
    every: int
    present: Run | None = None
    due: Due | None = None


class Schedules:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._all: dict[str, Schedule] = {}

    def create(
        self,
        name: str,
        workflow: str,
        request: Contract,
        every_s: float,
        *,
        trigger_immediately: bool = False,
    ) -> bool:
        """Make a schedule, at multiples of its interval; False: there is one of this name."""
        if name in self._all:
            return False
        schedule = self._all[name] = Schedule(name, workflow, request, micros(every_s))
        self.arm(schedule)
        if trigger_immediately:
            self._start(schedule)
        return True

    def names(self) -> list[str]:
        return list(self._all)

    def all(self) -> list[Schedule]:
        return list(self._all.values())

    def replace(self, schedules: list[Schedule]) -> None:
        """Have these and no others."""
        for schedule in self._all.values():
            if schedule.due is not None:
                schedule.due.cancel()
        self._all = {schedule.name: schedule for schedule in schedules}
        for schedule in schedules:
            self.arm(schedule)

    def delete(self, name: str) -> None:
        schedule = self._all.pop(name)
        if schedule.due is not None:
            schedule.due.cancel()

    def arm(self, schedule: Schedule) -> None:
        clock = self._engine.clock
        delay = schedule.every - clock.now % schedule.every
        schedule.due = clock.after(delay, partial(self._tick, schedule), is_background=True)

    def _tick(self, schedule: Schedule) -> None:
        self.arm(schedule)
        self._start(schedule)

    def _start(self, schedule: Schedule) -> None:
        """Start its workflow, unless the last one still runs: overlap SKIP."""
        if schedule.present is not None:
            latest = self._engine.server.latest.get(schedule.present.workflow_id)
            if latest is not None and latest.is_running:
                return
        engine = self._engine
        at = engine.clock.datetime().strftime("%Y-%m-%dT%H:%M:%SZ")
        workflow_id = f"{schedule.name}-{at}"
        running = engine.server.running.get(workflow_id)
        schedule.present = running or engine.server.start(
            schedule.workflow,
            workflow_id,
            engine.values.payload(schedule.request),
            attributes={"TemporalScheduledById": schedule.name},
        )
