"""How effects of the model call Temporal, and where the process that runs them may die."""

from collections.abc import Callable
from datetime import datetime

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import AlreadyStarted, NotFound, Temporal, Unavailable
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlacementRequest

WAKE_PAUSE_S = 0.05
WAKE_DELAY_S = 0.001


class ProcessDied(Exception):  # noqa: N818 - a condition, not an error
    """Raised by `Connection.between` to say that the process dies at this moment."""


class Connection:
    """The Temporal client of the processes behind the queues `main` and `planning`.

    between: called after each commit that is followed by something else (signals, dispatch), and
    between the deliveries of the outbox and their note. It may raise `ProcessDied`.
    """

    def __init__(self, temporal: Temporal) -> None:
        self.temporal = temporal
        self.between: Callable[[], None] = _nothing
        self._is_wanted = False
        self._is_sending = False

    def now(self) -> datetime:
        return self.temporal.now()

    def tell(
        self, workflow_id: str, signal: str, argument: Contract | None = None, request_id: str = ""
    ) -> bool:
        """As activities/temporal/client.py:tell: False when there is no such workflow.

        Raises: ApplicationError, to be retried, when Temporal did not take the signal.
        """
        try:
            self.temporal.signal(workflow_id, signal, argument, request_id=request_id)
        except NotFound:
            return False
        except Unavailable as cause:
            raise unanswered(f"{workflow_id}: signal {signal}", cause) from cause
        return True

    def wake_placement(self) -> None:
        """As activities/placement/wake.py: one signal at a time, with a pause after each."""
        self._is_wanted = True
        if not self._is_sending:
            self._is_sending = True
            self.temporal.later(WAKE_DELAY_S, self._send_wake)

    def _send_wake(self) -> None:
        if not self._is_wanted:
            self._is_sending = False
            return
        self._is_wanted = False
        try:
            self.temporal.start(
                "Placement",
                "placement",
                PlacementRequest(),
                conflict="use_existing",
                signal=("wake", None),
            )
        except (Unavailable, AlreadyStarted) as cause:
            self.temporal.note("rows", f"placement was not woken: {cause!r}")
        self.temporal.later(WAKE_PAUSE_S, self._send_wake)


def unanswered(what: str, cause: Exception) -> ApplicationError:
    """The failure of an activity whose call Temporal has not answered, which is retried."""
    return ApplicationError(f"{what}: Temporal has not answered: {cause}", type="RPCError")


def _nothing() -> None:
    """The process lives on."""
