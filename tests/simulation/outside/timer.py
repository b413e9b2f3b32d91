"""What a machine does after a while by its own clock."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.contracts import Cancellable

if TYPE_CHECKING:
    from tests.simulation.outside.machine import Machine


class Timer:
    """Something that a machine does after so many seconds by its own clock, while it has power."""

    def __init__(self, machine: "Machine", seconds: float, act: Callable[[], None]) -> None:
        self._machine = machine
        self._due_s = machine.monotonic_s() + seconds
        self._act = act
        self._waits: Cancellable | None = None

    def cancel(self) -> None:
        """Do not act any more."""
        self._machine.timers.pop(self, None)
        self.pause()

    def pause(self) -> None:
        """Wait until `go_on`, because the clock of the machine stands still."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def go_on(self) -> None:
        """Wait for what is left."""
        left_s = max(0.0, self._due_s - self._machine.monotonic_s()) / self._machine.rate
        self._waits = self._machine.temporal.later(left_s, self._fire)

    def _fire(self) -> None:
        self._waits = None
        self._machine.timers.pop(self, None)
        self._act()
