"""The command of a run: a process tree that does what its `Behaviour` says."""

from collections.abc import Callable
from signal import SIGKILL, SIGSEGV, SIGTERM
from typing import TYPE_CHECKING

from tests.simulation.behaviour import Behaviour

if TYPE_CHECKING:
    from tests.simulation.outside.machine import Machine
    from tests.simulation.outside.timer import Timer


class Command:
    """The living processes of one run, from their start to their end.

    left_s: how long it still takes; ended: called once, with the exit code or the signal.
    """

    def __init__(
        self,
        machine: "Machine",
        behaviour: Behaviour,
        left_s: float,
        exit_code: int,
        ended: Callable[[int | None, int | None], None],
    ) -> None:
        self.is_alive = True
        self.is_hung = False
        self._machine = machine
        self._behaviour = behaviour
        self._exit_code = exit_code
        self._ended = ended
        self._is_terminated = False
        self._is_killed = False
        self._left_s = left_s
        self._since_s = machine.monotonic_s()
        self._timer: Timer | None = None
        self._go_on()

    def terminate(self) -> None:
        """SIGTERM, which a command may ignore, and one in uninterruptible sleep does not hear."""
        self._is_terminated = True
        self._obey()

    def kill(self) -> None:
        """SIGKILL, which is obeyed when the sleep is over."""
        if self._is_killed or not self.is_alive:
            return
        self._is_killed = True
        if self._behaviour.unkillable_s > 0 and not self.is_hung:
            self.hang(min(self._behaviour.unkillable_s, self._machine.commands.most_hang_s))
        self._obey()

    def crash(self) -> None:
        if self.is_alive and not self.is_hung:
            self._end(None, SIGSEGV)

    def hang(self, seconds: float) -> None:
        """Uninterruptible sleep for so long: it hears no signal, and gets no further."""
        if not self.is_alive:
            return
        self._stop_clock()
        self.is_hung = True
        self._timer = self._machine.later(seconds, self.wake)

    def wake(self) -> None:
        """The sleep is over."""
        if self.is_hung:
            self._stop_clock()
            self.is_hung = False
            self._obey()
            self._go_on()

    def shorten(self, most_s: float, most_hang_s: float) -> None:
        """It sleeps and takes so long at most from now on, unless it is a service."""
        if self.is_hung:
            self._machine.later(most_hang_s, self.wake)
            if self._left_s != float("inf"):
                self._left_s = min(self._left_s, most_s)
        elif self.is_alive and self._left_s != float("inf"):
            self._stop_clock()
            self._left_s = min(self._left_s, most_s)
            self._go_on()

    def be_cut(self) -> None:
        """Its machine has lost its power."""
        self._stop_clock()
        self.is_alive = False

    def _obey(self) -> None:
        if self.is_hung or not self.is_alive:
            return
        if self._is_killed:
            self._end(None, SIGKILL)
        elif self._is_terminated and not self._is_deaf():
            self._end(None, SIGTERM)

    def _is_deaf(self) -> bool:
        return self._behaviour.ignores_sigterm or self._behaviour.unkillable_s > 0

    def _go_on(self) -> None:
        if not self.is_alive or self._left_s == float("inf"):
            return
        self._since_s = self._machine.monotonic_s()
        self._timer = self._machine.later(self._left_s, lambda: self._end(self._exit_code, None))

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if not self.is_hung:
                self._left_s -= self._machine.monotonic_s() - self._since_s

    def _end(self, exit_code: int | None, signal: int | None) -> None:
        if not self.is_alive:
            return
        self._stop_clock()
        self.is_alive = False
        self._ended(exit_code, signal)
