"""Google's errors as our exceptions, whichever of Google's libraries raised them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_THERE = frozenset({"alreadyexists", "already_exists", "resource_already_exists"})
"""The reasons of a 409 that mean: the name exists already."""


class GoogleUnavailableError(Exception):
    """Google did not answer, or says: retry later. The outcome of the request is unknown."""


class KeyRefusedError(Exception):
    """Google does not accept the key, which is deleted, disabled, expired or altered."""


class GoogleRefusedError(Exception):
    """Google refused the request.

    code: the HTTP status; reason: Google's word, such as `quotaExceeded` or `SERVICE_DISABLED`.
    """

    def __init__(self, asked: str, code: int, reason: str, message: str) -> None:
        super().__init__(f"{asked}: {message} ({code} {reason})".strip())
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def is_missing(self) -> bool:
        """Whether the resource does not exist."""
        return self.code == 404

    @property
    def is_there_already(self) -> bool:
        return self.code == 409 and self.reason.lower() in _THERE

    @property
    def is_switched_off(self) -> bool:
        """Whether the API is not enabled in the project."""
        return self.reason in {"SERVICE_DISABLED", "accessNotConfigured"}

    @property
    def is_in_use(self) -> bool:
        """Whether the resource is in use; answers and operations spell this reason differently."""
        return self.reason.replace("_", "").lower() == "resourceinusebyanotherresource"


LATER = frozenset({408, 429, 500, 502, 503, 504})
"""The HTTP statuses after which the outcome of the request is unknown."""
LATER_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "resourceNotReady"}
)
"""The reasons that pass without our action. In capitals, they are the final error of an operation,
and do not pass."""


@contextmanager
def naming_request(asked: str) -> Generator[None, None, None]:
    """Translate the errors of Google's libraries to ours, with the request in front.

    Raises: KeyRefusedError, GoogleUnavailableError, GoogleRefusedError.
    """
    import google.api_core.exceptions as api  # noqa: PLC0415 - half a second, only for Google
    import google.auth.exceptions as auth  # noqa: PLC0415
    import requests.exceptions as http  # noqa: PLC0415

    try:
        yield
    except auth.RefreshError as error:
        if error.retryable:
            raise GoogleUnavailableError(f"{asked}: {_first_line(error)}") from error
        raise KeyRefusedError(f"{asked}: {_first_line(error)}") from error
    except (auth.TransportError, http.RequestException, api.RetryError) as error:
        message = f"{asked}: no answer: {type(error).__name__}"
        raise GoogleUnavailableError(message) from error
    except api.GoogleAPICallError as error:
        raise refused(asked, int(error.code or 0), _reason_of(error), str(error.message)) from error


def refused(asked: str, code: int, reason: str, message: str) -> Exception:
    """The exception for an error that Google answered."""
    if code in LATER or reason in LATER_REASONS:
        return GoogleUnavailableError(f"{asked}: {code} {reason} {message}")
    if code == 401:
        return KeyRefusedError(f"{asked}: {message}")
    return GoogleRefusedError(asked, code, reason, message)


def reason_in(body: Any) -> tuple[str, str]:
    """The reason and the message in the JSON of an error, in any of the APIs' forms."""
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
    """Google's message; the lines after the first repeat the answer."""
    return str(error.args[0] if error.args else error).splitlines()[0][:300]


def must_be_ours(name: str, found: str | None, wanted: str) -> None:
    """Check the ownership label of a resource.

    Raises: GoogleRefusedError, when the resource has our name but not our ownership label.
    """
    if found != wanted:
        message = "exists, and is not ours: it lacks our ownership label; remove or rename it"
        raise GoogleRefusedError(name, 409, "notOurs", message)
