"""A cloud that rents machines as one object: start it, point the product at its address."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.doubles.http_double import Answer, Asked, serving
from tests.doubles.rented.boot import Boot, NoBoot
from tests.doubles.rented.clock import Clock
from tests.doubles.rented.control import Control
from tests.doubles.rented.door import Door, Refusals
from tests.doubles.rented.faults import Fault, FaultKind, Faults
from tests.doubles.rented.meter import Meter


class RentedDouble:
    """What the doubles have in common; each gives `control` and fills the routes of `door`."""

    control: Control

    def __init__(
        self, refusals: Refusals, *, rate: float = 0.0, boot: Boot | None = None, port: int = 0
    ) -> None:
        self.clock = Clock(rate)
        self.faults = Faults()
        self.meter = Meter(self.clock.now)
        self.boot = boot or NoBoot()
        self.door = Door(self.clock, self.faults, refusals)
        self._port = port
        self._held = ExitStack()
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which the product reaches this cloud, and a key that works."""
        raise NotImplementedError

    @property
    def violations(self) -> list[str]:
        return self.door.violations

    @property
    def calls(self) -> list[str]:
        return self.door.calls

    def fault(self, kind: FaultKind, call: str = "*", **script: object) -> Fault:
        """Script a fault, which strikes once where nothing else is said."""
        with self.clock.lock:
            return self.faults.add(Fault(kind, call, **script))  # type: ignore[arg-type]

    def away(self, seconds: float) -> None:
        """Cut every connection for so long by the cloud's clock."""
        with self.clock.lock:
            self.faults.away_until = self.clock.now() + seconds

    def __enter__(self) -> Self:
        self.url = self._held.enter_context(serving(self._answer, self._port))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.faults.clear()
        self.clock.close()
        self._held.close()
        self.boot.close()

    def _answer(self, asked: Asked) -> Answer:
        if asked.path.startswith("/double/"):
            return self.control.answer(asked)
        return self.door.answer(asked)
