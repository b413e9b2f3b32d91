"""API keys of marketplaces as a person gives them: parsed, and refused when they are malformed."""

import json
import re
from dataclasses import dataclass, field

from activities.providers.base import KeyMistakeError

_KEY = re.compile(r"[A-Za-z0-9_-]{16,256}")
_FIELD = "api_key"


@dataclass(frozen=True)
class ApiKey:
    """A well-formed API key; only the marketplace can say whether it works."""

    api_key: str = field(repr=False)

    @property
    def project_id(self) -> str:
        """Empty: the key names no project."""
        return ""

    @property
    def shown(self) -> dict[str, str]:
        """The parts of the key that are not secret: its last characters."""
        return {"project_id": "", "service_account": "", "key": f"…{self.api_key[-4:]}"}


def read_api_key(text: str, what: str) -> ApiKey:
    """The key in `{"api_key": "…"}`, or the key alone; what: such as `an API key of Vast.ai`.

    Raises: KeyMistakeError.
    """
    given = text.strip()
    if given.startswith("{"):
        given = _from_json(given, what)
    if not _KEY.fullmatch(given):
        raise KeyMistakeError("credentials.api_key", f"is {what}")
    return ApiKey(given)


def _from_json(text: str, what: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Without the cause, which quotes the key.
        raise KeyMistakeError("credentials", 'is {"api_key": "…"}, or the key alone') from None
    if isinstance(document, dict) and set(document) - {_FIELD}:
        raise KeyMistakeError("credentials", f"has {_FIELD} alone")
    value = document.get(_FIELD) if isinstance(document, dict) else None
    if not isinstance(value, str):
        raise KeyMistakeError("credentials.api_key", f"is {what}")
    return value
