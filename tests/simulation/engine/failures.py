"""Failures as Temporal carries them: of attempts, of activities, of time limits."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

SCHEDULE_TO_START = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
SCHEDULE_TO_CLOSE = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE
START_TO_CLOSE = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
HEARTBEAT = TimeoutType.TIMEOUT_TYPE_HEARTBEAT

UNKNOWN = RetryState.RETRY_STATE_UNSPECIFIED
IN_PROGRESS = RetryState.RETRY_STATE_IN_PROGRESS
NON_RETRYABLE = RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
OUT_OF_TIME = RetryState.RETRY_STATE_TIMEOUT
OUT_OF_ATTEMPTS = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
CANCEL_REQUESTED = RetryState.RETRY_STATE_CANCEL_REQUESTED


def of_application(error: Exception) -> Failure:
    """What the SDK makes of an exception of an effect, without its traceback."""
    failure = Failure(source="PythonSDK")
    info = failure.application_failure_info
    info.SetInParent()
    if isinstance(error, ApplicationError):
        failure.message = error.message
        info.type = error.type or ""
        info.non_retryable = error.non_retryable
        if error.details:
            payloads = pydantic_data_converter.payload_converter.to_payloads(error.details)
            info.details.payloads.extend(payloads)
        if error.next_retry_delay:
            info.next_retry_delay.FromTimedelta(error.next_retry_delay)
    else:
        failure.message = str(error)
        info.type = type(error).__name__
    if isinstance(error.__cause__, Exception):
        failure.cause.CopyFrom(of_application(error.__cause__))
    return failure


def of_time(kind: TimeoutType.ValueType, cause: Failure | None = None) -> Failure:
    failure = Failure(message="activity timeout", source="Server")
    failure.timeout_failure_info.timeout_type = kind
    if cause is not None:
        failure.cause.CopyFrom(cause)
    return failure


def of_cancellation() -> Failure:
    failure = Failure(message="Activity cancelled", source="PythonSDK")
    failure.canceled_failure_info.SetInParent()
    return failure


def of_lost_signal() -> Failure:
    """What a workflow is told whose signal has found no workflow."""
    failure = Failure(message="Unable to signal external workflow because it was not found")
    failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
    return failure


def of_activity(
    cause: Failure,
    *,
    effect: str,
    activity_id: str,
    state: "RetryState.ValueType" = CANCEL_REQUESTED,
) -> Failure:
    """The failure of an activity, of which `cause` is what happened in its last attempt."""
    is_canceled = cause.HasField("canceled_failure_info")
    words = "Activity task canceled" if is_canceled else "activity error"
    failure = Failure(message=words, source="Server")
    info = failure.activity_failure_info
    info.activity_type.name = effect
    info.activity_id = activity_id
    info.retry_state = state
    failure.cause.CopyFrom(cause)
    return failure


def is_retryable(failure: Failure, non_retryable: Sequence[str]) -> bool:
    """Whether a retry policy lets another attempt follow this failure."""
    if failure.HasField("application_failure_info"):
        info: Any = failure.application_failure_info
        return not info.non_retryable and info.type not in non_retryable
    if failure.HasField("timeout_failure_info"):
        return failure.timeout_failure_info.timeout_type in {START_TO_CLOSE, HEARTBEAT}
    return False
