"""Vast.ai's errors as the exceptions of a driver."""

from activities.providers.base import (
    CapacityExhausted,
    ProviderError,
    RequestRefused,
    Unavailable,
)
from activities.providers.json_api import Answer

GONE_OFFER = "no_such_ask"
"""In the error or the message, for an offer that somebody else has, or that is offered no more."""
MISSING = (404, "not_found"), (200, "no_such_instance"), (404, "no_such_instance")
"""How Vast.ai answers for an instance that does not exist."""
TOO_MANY = 429
NO_MORE_SEARCHES = "search_quota_exceeded"
"""The error of a search too many for the day, which ends at midnight UTC."""
_WORDS = {
    401: "the key is not accepted",
    402: "the credit of the account is used up",
    403: "the key, or the account, may not do this",
}
_LATER = (408, 425, TOO_MANY)


def failure_of(answer: Answer, retry_after_s: float | None = None) -> ProviderError:
    """The exception for an answer that is no success, whatever its status."""
    shown = _shown(answer)
    message = f"Vast.ai {answer.asked}: {answer.status}"
    if words := _WORDS.get(answer.status):
        message = f"{message}, {words}"
    message = f"{message}: {shown}" if shown else message
    if GONE_OFFER in shown:
        return CapacityExhausted(message)
    if answer.status >= 500 or answer.status in _LATER:
        return Unavailable(message, retry_after_s=answer.retry_after_s or retry_after_s)
    return RequestRefused(message)


def misread(answer: Answer, wanted: str) -> Unavailable:
    """The exception for a success that does not have what Vast.ai documents.

    The outcome of the request is unknown, as that of one without an answer.
    """
    return Unavailable(f"Vast.ai {answer.asked}: asked {wanted}, found something else")


def is_missing(answer: Answer) -> bool:
    """Whether the answer says that the instance does not exist."""
    return (answer.status, answer.fields.get("error")) in MISSING


def _shown(answer: Answer) -> str:
    """The error and the message of Vast.ai, or the start of a text that is no JSON."""
    parts = [str(answer.fields[name]) for name in ("error", "msg") if answer.fields.get(name)]
    return (": ".join(parts) or ("" if answer.fields else answer.text))[:300]
