"""Requests to the JSON API of a marketplace, with one key, over connections that stay open."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import httpcore

from activities.providers.base import Unavailable

TIMEOUTS = {"connect": 10.0, "read": 20.0, "write": 20.0, "pool": 10.0}
MOST_ANSWER_BYTES = 32 << 20
"""The largest answer: a marketplace lists some ten thousand offers in one."""
SHOWN_CHARACTERS = 300
KEPT_APIS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    asked: the method and the path, for messages; content: the JSON, None when it is none; text: the
    start of the body; retry_after_s: what the header of this name asks for.
    """

    asked: str
    status: int
    content: Any
    text: str
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def fields(self) -> Mapping[str, Any]:
        """The JSON object; empty for any other content."""
        return self.content if isinstance(self.content, dict) else {}


@dataclass(frozen=True)
class JsonApi:
    """The API at one base URL, called with one bearer key. Thread-safe. Nothing is retried here."""

    endpoint: str
    key: str = field(repr=False)
    _pool: httpcore.ConnectionPool = field(
        default_factory=lambda: httpcore.ConnectionPool(retries=0, max_connections=64), repr=False
    )

    def close(self) -> None:
        self._pool.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        """The answer to one request, whatever its status. Blocking.

        Raises: Unavailable, when there is no complete answer; the request may have been carried
        out.
        """
        asked = f"{method} {path}"
        url = f"{self.endpoint.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        headers: dict[bytes | str, bytes | str] = {
            "User-Agent": "baseload",
            "Authorization": f"Bearer {self.key}",
            "Accept": "application/json",
        }
        content = b""
        if body is not None:
            content = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        try:
            with self._pool.stream(
                method,
                url,
                headers=headers,
                content=content,
                extensions={"timeout": TIMEOUTS},
            ) as response:
                return _answer(asked, response)
        except (httpcore.UnsupportedProtocol, httpcore.LocalProtocolError):
            # Its words may hold the header with the key.
            raise Unavailable(f"{asked}: cannot be asked by HTTP so") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise Unavailable(f"{asked}: no answer: {type(error).__name__}") from None


@lru_cache(maxsize=KEPT_APIS)
def json_api(endpoint: str, key: str) -> JsonApi:
    """The API for a key, kept with its connections."""
    return JsonApi(endpoint, key)


def _answer(asked: str, response: httpcore.Response) -> Answer:
    """Raises: Unavailable, for an answer that is too long."""
    parts, size = [], 0
    for chunk in response.iter_stream():
        size += len(chunk)
        if size > MOST_ANSWER_BYTES:
            raise Unavailable(f"{asked}: asked at most {MOST_ANSWER_BYTES} bytes, found more")
        parts.append(chunk)
    raw = b"".join(parts)
    try:
        content = json.loads(raw, parse_float=Decimal)
    except (ValueError, RecursionError):
        content = None
    text = raw[:SHOWN_CHARACTERS].decode("utf-8", "replace")
    return Answer(asked, response.status, content, text, _retry_after_s(response))


def _retry_after_s(response: httpcore.Response) -> float | None:
    for name, value in response.headers:
        if name.lower() == b"retry-after" and value.isdigit():
            return float(value)
    return None
