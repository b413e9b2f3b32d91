"""Failures of effects: the exceptions that a failed effect raises, and their causes in words."""

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as OutOfTime

UNSERVED = "Unserved"
"""The failure type of an activity that no worker process has taken: its node was not contacted."""


def cause_of(failure: BaseException) -> tuple[str, str]:
    """The (type, message) of a failed effect, for people and for decisions.

    The first ApplicationError in the chain of causes counts. The causes below that error, such as
    an error of a socket, have other types and say less. A timeout carries no message of the
    activity, so the message is built from the activity's name.
    """
    bottom: BaseException = failure
    activity = failure.activity_type if isinstance(failure, ActivityError) else ""
    while (
        isinstance(bottom, FailureError)
        and not isinstance(bottom, ApplicationError)
        and bottom.cause is not None
    ):
        bottom = bottom.cause
    if isinstance(bottom, OutOfTime) and bottom.type is TimeoutType.SCHEDULE_TO_START:
        return UNSERVED, f"{activity}: no worker serves its queue, not taken within its limit"
    if isinstance(bottom, OutOfTime):
        missing = "heartbeat" if bottom.type is TimeoutType.HEARTBEAT else "answer"
        return type(bottom).__name__, f"{activity}: no {missing} within its limit"
    kind = bottom.type if isinstance(bottom, ApplicationError) else type(bottom).__name__
    return kind or "", bottom.message if isinstance(bottom, FailureError) else str(bottom)


EFFECT_FAILED = (ActivityError, ApplicationError)
"""The exceptions of a failed effect: an activity raises the first, a local activity the second."""
