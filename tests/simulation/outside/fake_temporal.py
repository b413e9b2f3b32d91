"""A small `Temporal` for the tests of the world: a clock, signals that arrive, and effects."""

import heapq
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, CutOff, Handler, Sleep, Temporal, Unavailable
from tests.simulation.outside.world import CloudSide, World
from workflows.contracts.base import Contract

FOREVER_S = 48 * 3600.0


@dataclass(order=True)
class Due:
    at_s: float
    number: int
    act: Callable[[], None] = field(compare=False)
    is_canceled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.is_canceled = True


class FakeTemporal:
    """The parts of `Temporal` that the world uses."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.signals: list[tuple[str, str, Any]] = []
        self.is_away = False
        self.seconds = 0.0
        self._due: list[Due] = []
        self._count = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def later(self, delay_s: float, act: Callable[[], None]) -> Due:
        self._count += 1
        delay_s = int(delay_s * 1e6) / 1e6  # Virtual time passes in whole microseconds.
        due = Due(self.seconds + delay_s, self._count, act)
        heapq.heappush(self._due, due)
        return due

    def signal(
        self, workflow_id: str, name: str, argument: Any = None, *, request_id: str = ""
    ) -> None:
        del request_id
        if self.is_away:
            raise Unavailable
        self.signals.append((workflow_id, name, argument))

    def play(self, seconds: float) -> None:
        """Let so much time pass."""
        self.play_until(lambda: False, seconds)

    def play_until(self, holds: Callable[[], bool], limit_s: float) -> None:
        end_s = self.seconds + limit_s
        while not holds() and self._due and self._due[0].at_s <= end_s:
            due = heapq.heappop(self._due)
            if not due.is_canceled:
                self.seconds = max(self.seconds, due.at_s)
                due.act()
        if not holds():
            self.seconds = end_s


class Call:
    """One attempt of an effect."""

    def __init__(self, temporal: FakeTemporal, answer: Any) -> None:
        self._temporal = temporal
        self._steps = answer if isinstance(answer, Generator) else None
        self._turn = 0
        self.answer: Any = None if self._steps else answer
        self.error: ApplicationError | None = None
        self.is_over = self._steps is None
        if self._steps:
            self._go_on(lambda: next(cast("Generator[Any, Any, Any]", self._steps)))

    def cut_off(self) -> None:
        assert self._steps
        steps = self._steps
        self._go_on(lambda: steps.throw(CutOff()))

    def close(self) -> None:
        """Its worker process is killed."""
        assert self._steps
        self._turn += 1
        self.is_over = True
        self._steps.close()

    def _go_on(self, advance: Callable[[], Any]) -> None:
        self._turn += 1
        try:
            wanted = advance()
        except StopIteration as end:
            self.is_over, self.answer = True, end.value
        except CutOff:
            self.is_over = True
        except ApplicationError as error:
            self.is_over, self.error = True, error
        else:
            self._wait(wanted, self._turn)

    def _wait(self, wanted: Any, turn: int) -> None:
        def wake(*, was_set: bool) -> None:
            if turn == self._turn and not self.is_over and self._steps:
                steps = self._steps
                self._go_on(lambda: steps.send(was_set))

        if isinstance(wanted, Sleep):
            self._temporal.later(wanted.seconds, lambda: wake(was_set=False))
        elif wanted.event.is_set:
            self._temporal.later(0, lambda: wake(was_set=True))
        else:
            wanted.event.waiting.append(lambda: wake(was_set=True))
            self._temporal.later(wanted.limit_s, lambda: wake(was_set=False))


class NoClouds:
    """An installation without clouds."""

    effects: Mapping[str, Handler] = {}
    faults: Sequence[str] = ()

    def __init__(self, temporal: Temporal, machines: Any) -> None: ...
    def connect(self, rows: Any) -> None: ...
    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None: ...
    def calm(self) -> None: ...
    def cloud_machines(self) -> list[Any]:
        return []

    def violations(self) -> list[str]:
        return []


class Installation:
    """A world, and the calls of effects in it."""

    def __init__(self, seed: int = 1) -> None:
        self.temporal = FakeTemporal(seed)
        self.world = World(cast("Temporal", self.temporal), _no_clouds)

    def begin(self, effect: str, command: Contract) -> Call:
        """Begin an attempt. Raises: ApplicationError, when it fails at once."""
        attempt = Attempt(effect, "job/job-1", "run", "1", 1, "site")
        return Call(self.temporal, self.world.effects[effect](attempt, command))

    def do(self, effect: str, command: Contract) -> Any:
        """An effect, to its answer. Raises: ApplicationError."""
        call = self.begin(effect, command)
        self.temporal.play_until(lambda: call.is_over, FOREVER_S)
        if call.error is not None:
            raise call.error
        return call.answer


def _no_clouds(temporal: Temporal, machines: Any) -> CloudSide:
    return NoClouds(temporal, machines)
