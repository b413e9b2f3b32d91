"""Requests to the API as values, and the rules for retrying them; this module sends nothing."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from baseload.errors import ApiError

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True)
class Call:
    """One request to the API.

    `file` is sent as the body, in pieces, `content` as it is, and `body` as JSON.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    file: Path | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, str | list[str]]:
        """The query parameters of the request; None is left out, a list is repeated."""
        return {name: _as_text(value) for name, value in self.query.items() if value is not None}

    @property
    def is_repeatable(self) -> bool:
        """Whether the request may be sent twice; a POST may, because of its Idempotency-Key."""
        return self.method in {"GET", "HEAD", "PUT", "DELETE", "POST"}

    def prepared_headers(self) -> dict[str, str]:
        """The headers of the request; a POST gets a new Idempotency-Key, which retries repeat."""
        headers = dict(self.headers)
        if self.method == "POST":
            headers.setdefault("Idempotency-Key", uuid.uuid4().hex)
        if self.file is not None:
            headers.setdefault("Content-Type", "application/gzip")
        if self.content is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        return headers


@dataclass(frozen=True)
class Retries:
    """The retries of a request: the first attempt and `attempts - 1` more."""

    attempts: int = 4
    first_s: float = 0.1
    longest_s: float = 2.0
    stream_limit_s: float = 60.0
    """How long a stream may be broken before following it fails."""

    def delay_s(self, attempt: int, asked_s: float | None = None) -> float:
        """The wait after attempt number `attempt` (from 1), random so that clients spread out."""
        if asked_s is not None:
            return min(asked_s, 10.0)
        longest = min(self.first_s * 2 ** min(attempt - 1, 16), self.longest_s)
        return float(longest * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def segment(text: str) -> str:
    """One segment of a URL path, with every special character escaped."""
    return quote(text, safe="")


def seconds_asked(header: str | None) -> float | None:
    """The whole seconds of a `Retry-After` header; dates are not used by the API."""
    return float(header) if header is not None and header.isdigit() else None


def problem_of(text: str) -> dict[str, Any]:
    """The problem details in an error's body; any other body becomes the `detail`."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"detail": text.strip()[:500]}


def refusal_of(text: str) -> ApiError:
    """The error of problem details that come in a stream, whose status was a good one."""
    problem = problem_of(text)
    status = problem.get("status")
    return ApiError(status if isinstance(status, int) else 503, problem)


def _as_text(value: Any) -> str | list[str]:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)
