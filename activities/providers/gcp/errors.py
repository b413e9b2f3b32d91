"""What Google answers instead of what was asked for, whichever of its libraries carried it."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_THERE = frozenset({"alreadyexists", "already_exists", "resource_already_exists"})
"""Reasons for a 409 that mean: of this name there is one."""


class GoogleUnavailableError(Exception):
    """No answer, or one that says: later. Nothing is known of what was asked."""


class KeyRefusedError(Exception):
    """Google does not take the key: deleted, disabled, of another time, or altered."""


class GoogleRefusedError(Exception):
    """An answer that says no.

    code: the HTTP status; reason: the word of it, such as `quotaExceeded` or `SERVICE_DISABLED`.
    """

    def __init__(self, asked: str, code: int, reason: str, message: str) -> None:
        super().__init__(f"{asked}: {message} ({code} {reason})".strip())
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def is_missing(self) -> bool:
        """There is no such thing."""
        return self.code == 404

    @property
    def is_there_already(self) -> bool:
        return self.code == 409 and self.reason.lower() in _THERE

    @property
    def is_switched_off(self) -> bool:
        """The API is not enabled in the project."""
        return self.reason in {"SERVICE_DISABLED", "accessNotConfigured"}

    @property
    def is_in_use(self) -> bool:
        """An answer words it one way, an operation another."""
        return self.reason.replace("_", "").lower() == "resourceinusebyanotherresource"


LATER = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that say nothing about what was asked."""
LATER_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "resourceNotReady"}
)
"""Refusals that pass by themselves. What an operation ends with is in capitals, and is its end."""


@contextmanager
def naming_request(asked: str) -> Generator[None, None, None]:
    """Let what is asked of Google within fail in our words, with what was asked in front.

    Raises: KeyRefusedError, GoogleUnavailableError, GoogleRefusedError.
    """
    import google.api_core.exceptions as api  # noqa: PLC0415 - half a second, for who asks Google
    import google.auth.exceptions as auth  # noqa: PLC0415
    import requests.exceptions as http  # noqa: PLC0415

    try:
        yield
    except auth.RefreshError as error:
        if error.retryable:
            raise GoogleUnavailableError(f"{asked}: {_first_line(error)}") from error
        raise KeyRefusedError(f"{asked}: {_first_line(error)}") from error
    except (auth.TransportError, http.RequestException, api.RetryError) as error:
        told = f"{asked}: no answer: {type(error).__name__}"
        raise GoogleUnavailableError(told) from error
    except api.GoogleAPICallError as error:
        raise refused(asked, int(error.code or 0), _reason_of(error), str(error.message)) from error


def refused(asked: str, code: int, reason: str, message: str) -> Exception:
    """The error for an answer that is none of what was asked for."""
    if code in LATER or reason in LATER_REASONS:
        return GoogleUnavailableError(f"{asked}: {code} {reason} {message}")
    if code == 401:
        return KeyRefusedError(f"{asked}: {message}")
    return GoogleRefusedError(asked, code, reason, message)


def reason_in(body: Any) -> tuple[str, str]:
    """(reason, message) out of the JSON of an error, as each of the APIs words it."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", str(body)[:200]
    message = str(error.get("message", ""))
    for each in error.get("details", ()):
        if isinstance(each, dict) and each.get("reason"):
            return str(each["reason"]), message
    for each in error.get("errors", ()):
        if isinstance(each, dict) and each.get("reason"):
            return str(each["reason"]), message
    return str(error.get("status", "")), message


def _reason_of(error: Any) -> str:
    if error.reason:
        return str(error.reason)
    for each in error.errors:
        if isinstance(each, dict) and each.get("reason"):
            return str(each["reason"])
    return str(error.grpc_status_code.name) if error.grpc_status_code else ""


def _first_line(error: Exception) -> str:
    """Google's words; what follows them repeats the answer."""
    return str(error.args[0] if error.args else error).splitlines()[0][:300]


def must_be_ours(name: str, found: str | None, wanted: str) -> None:
    """Raises: GoogleRefusedError, for what has our name and not our ownership label."""
    if found != wanted:
        told = "exists, and is not ours: it lacks our ownership label; remove or rename it"
        raise GoogleRefusedError(name, 409, "notOurs", told)
