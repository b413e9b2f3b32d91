"""RunPod's errors as the exceptions of a driver."""

from activities.providers.base import (
    CapacityExhausted,
    ProviderError,
    RequestRefused,
    Unavailable,
)
from activities.providers.json_api import Answer

NO_CAPACITY = (
    "no longer any instances available",
    "no instances available",
    "does not have the resources",
)
"""Parts of the messages, in small letters, for which another offer may have capacity. RunPod gives
the status of a mistake, 400, also for these."""
MISSING = 404
_WORDS = {
    401: "the key is not accepted",
    402: "the balance of the account is used up",
    403: "the key, or the account, may not do this",
}
_LATER = (408, 425, 429)


def failure_of(answer: Answer) -> ProviderError:
    """The exception for an answer that is no success."""
    told = _told(answer)
    message = f"RunPod {answer.asked}: {answer.status}"
    if words := _WORDS.get(answer.status):
        message = f"{message}, {words}"
    message = f"{message}: {told}" if told else message
    if any(part in told.lower() for part in NO_CAPACITY):
        return CapacityExhausted(message)
    if answer.status >= 500 or answer.status in _LATER:
        return Unavailable(message, retry_after_s=answer.retry_after_s)
    return RequestRefused(message)


def misread(answer: Answer, wanted: str) -> Unavailable:
    """The exception for a success that does not have what RunPod documents.

    The outcome of the request is unknown, as that of one without an answer.
    """
    return Unavailable(f"RunPod {answer.asked}: asked {wanted}, found something else")


def _told(answer: Answer) -> str:
    """What RunPod says: its detail with the mistakes, or the start of a text that is no JSON."""
    detail = str(answer.fields.get("detail") or answer.fields.get("title") or "")
    errors = answer.fields.get("errors")
    if isinstance(errors, list) and errors:
        detail = f"{detail} {'; '.join(str(each) for each in errors)}".strip()
    return (detail or ("" if answer.fields else answer.text))[:300]
