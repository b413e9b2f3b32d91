"""What a failed effect raises, and what it says of its cause."""

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as OutOfTime

UNSERVED = "Unserved"
"""The kind of failure of what no worker has taken: nobody has looked, so nothing was found."""


def cause_of(failure: BaseException) -> tuple[str, str]:
    """(type, message) of what an effect has said of its failure, for people and for decisions.

    Below its own words may lie what made it fail: a socket's error says less, and of another type.
    What ran out of time has said nothing: then its name is the cause.
    """
    bottom: BaseException = failure
    asked = failure.activity_type if isinstance(failure, ActivityError) else ""
    while (
        isinstance(bottom, FailureError)
        and not isinstance(bottom, ApplicationError)
        and bottom.cause is not None
    ):
        bottom = bottom.cause
    if isinstance(bottom, OutOfTime) and bottom.type is TimeoutType.SCHEDULE_TO_START:
        return UNSERVED, f"{asked}: no worker serves its queue, not taken within its limit"
    if isinstance(bottom, OutOfTime):
        silent = "sign of life" if bottom.type is TimeoutType.HEARTBEAT else "answer"
        return type(bottom).__name__, f"{asked}: no {silent} within its limit"
    kind = bottom.type if isinstance(bottom, ApplicationError) else type(bottom).__name__
    return kind or "", bottom.message if isinstance(bottom, FailureError) else str(bottom)


EFFECT_FAILED = (ActivityError, ApplicationError)
"""What a failed effect raises: a local activity the second, an ordinary one the first."""
