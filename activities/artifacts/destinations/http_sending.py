"""HTTP requests that send: to permitted addresses alone, watched, and without redirects.

No error has more of a request than the name that its caller gives: a URL or a header may be secret.
"""

import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpcore

from activities.artifacts.sources.pace import Pace
from activities.artifacts.sources.source_addresses import (
    CheckedNetwork,
    SourceAddressRefusedError,
)
from activities.artifacts.sources.tar_streams import refused, unavailable

TIMEOUTS = {"connect": 10.0, "read": 120.0, "write": 60.0, "pool": 10.0}
ANSWER_S = 120.0
"""How long an answer may take once the request is sent."""
MOST_ANSWER_BYTES = 1 << 20
PIECE_BYTES = 16 << 10
"""What is written before the rate is judged again."""
TRY_AGAIN = (408, 425, 429)


@dataclass(frozen=True)
class Reply:
    """The answer to a request; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    """At most its first MiB."""

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def may_be_repeated(self) -> bool:
        return self.status >= 500 or self.status in TRY_AGAIN


class HttpSender:
    """Connections to one server, which stay open for later requests."""

    def __init__(self) -> None:
        watch = partial(_WatchedStream, watch=_Watch())
        self._pool = httpcore.ConnectionPool(network_backend=CheckedNetwork(watch), retries=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._pool.close()

    def send(
        self,
        method: str,
        url: str,
        body: tuple[Mapping[str, str], bytes | Iterable[bytes]],
        shown: str,
    ) -> Reply:
        """Send a request. Blocking.

        body: the headers, with a Content-Length where the bytes come in chunks, and the bytes.
        shown: what errors have instead of the URL.
        Raises: ApplicationError `Refused`, for an address that is not permitted; `Unavailable`,
        when there is no answer.
        """
        given, content = body
        headers: Any = {"User-Agent": "baseload", **given}
        asked = {"headers": headers, "content": content, "extensions": {"timeout": TIMEOUTS}}
        try:
            with self._pool.stream(method, url, **asked) as response:
                return _reply(response)
        except SourceAddressRefusedError as error:
            raise refused(f"{shown}: {error}") from None
        except (httpcore.UnsupportedProtocol, httpcore.LocalProtocolError):
            # Its words may hold the header that it does not send.
            raise refused(f"{shown}: cannot be asked by HTTP so") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise unavailable(f"{shown}: {type(error).__name__}") from None


def _reply(response: httpcore.Response) -> Reply:
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }
    content = b""
    for chunk in response.iter_stream():
        content += chunk[: MOST_ANSWER_BYTES - len(content)]
        if len(content) == MOST_ANSWER_BYTES:
            break
    return Reply(response.status, headers, content)


class _Watch:
    """The rate at which a server takes what is sent, and how long it has been silent since."""

    def __init__(self) -> None:
        self._pace, self._silent_s = Pace(), 0.0

    def wrote(self, size_bytes: int, waited_s: float) -> None:
        self._silent_s = 0.0
        self._pace.count(size_bytes, waited_s)

    def read(self, waited_s: float) -> None:
        """Raises: httpcore.ReadTimeout, when the answer takes too long in all."""
        self._silent_s += waited_s
        if self._silent_s > ANSWER_S:
            raise httpcore.ReadTimeout(f"no whole answer within {ANSWER_S:.0f} s")


class _WatchedStream(httpcore.NetworkStream):
    """A connection whose writes and answers are watched."""

    def __init__(self, stream: httpcore.NetworkStream, watch: _Watch) -> None:
        self._stream, self._watch = stream, watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        began = time.monotonic()
        found = self._stream.read(max_bytes, timeout)
        self._watch.read(time.monotonic() - began)
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE_BYTES):
            piece = buffer[start : start + PIECE_BYTES]
            began = time.monotonic()
            self._stream.write(piece, timeout)
            self._watch.wrote(len(piece), time.monotonic() - began)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _WatchedStream(stream, self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
