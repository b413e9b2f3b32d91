"""The errors of a client of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class BaseloadError(Exception):
    """The base class of this package's errors; the text of each is written for a person."""


class ConfigurationError(BaseloadError):
    """No key, or a settings file that cannot be read."""


class UnreachableError(BaseloadError):
    """The API did not answer, after all retries."""


@dataclass(frozen=True)
class FieldError:
    """One field error. `field` is a dotted path into the request, such as `workers.0.command`."""

    field: str
    rule: str
    value: Any = None


class ApiError(BaseloadError):
    """The API refused a request: its problem details (RFC 9457), with the stable `code`."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.type = str(problem.get("type") or "about:blank")
        self.title = str(problem.get("title") or f"HTTP status {status}")
        self.detail = str(problem.get("detail") or self.title)
        self.code = str(problem.get("code") or "unknown")
        self.errors = tuple(
            FieldError(str(each.get("field", "")), str(each.get("rule", "")), each.get("value"))
            for each in problem.get("errors") or ()
        )
        super().__init__(self.detail)
