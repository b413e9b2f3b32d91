"""A connection of a site to a machine, and its loss."""

from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tests.simulation.contracts import Event, Sleep, Until
from tests.simulation.outside import failures
from workflows.contracts import errors

if TYPE_CHECKING:
    from tests.simulation.outside.machine import Machine
    from tests.simulation.outside.runs import Run

TICK_S = 1e-3
"""What is left of a limit when it is over: virtual time passes in whole microseconds."""
SILENCE_S = 12.0
"""After so long without a word a connection is given up; a shorter outage is survived."""

Wait = Generator[Sleep | Until, Any, bool]


class Connection:
    """An open connection of one effect, which hears of what changes on the machine."""

    def __init__(self, machine: "Machine", node_id: str) -> None:
        self.machine = machine
        self.node_id = node_id
        self.news: list[Run] = []
        """The runs that have ended or lost their supervisor since somebody looked."""
        self.is_cut = False
        """The machine has lost its power, or its address."""
        self.stirred = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.machine.connections.pop(self, None)

    def wait(self, limit_s: float, loss: str = errors.OUTCOME_UNKNOWN) -> Wait:
        """Until something has changed on the machine; False: nothing did within the limit.

        Raises: ApplicationError of the type `loss`, when the connection is lost.
        """
        is_stirred = bool((yield Until(self.stirred, max(0.0, limit_s))))
        self.stirred.clear()
        if not self.is_cut and not self.machine.is_reachable:
            yield Until(self.stirred, SILENCE_S)
            self.stirred.clear()
            is_stirred = True
        if self.is_cut or not self.machine.is_reachable:
            raise failures.lost(self.node_id, self.machine.host, loss)
        return is_stirred

    def until(self, holds: Callable[[], bool], limit_s: float) -> Wait:
        """Until that holds; False: it does not hold after the limit.

        Raises: ApplicationError OUTCOME_UNKNOWN, when the connection is lost.
        """
        due_s = self.machine.now_s() + limit_s
        while not holds() and (left_s := due_s - self.machine.now_s()) > TICK_S:
            yield from self.wait(left_s)
        return holds()
