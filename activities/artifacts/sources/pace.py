"""The least rate at which a web server must send, so that none holds a transfer for days."""

import ssl
import time
from typing import Any

import httpcore

LEAST_BYTES_PER_S = 10_000
WINDOW_S = 60.0
"""The seconds of waiting over which the rate is measured; what is sent in less is not judged."""


class Pace:
    """How much a server sends while it is waited for, over all connections of one request.

    Headers and redirects count too. The time in which what was sent is stored does not count.
    """

    def __init__(self) -> None:
        self._waited_s, self._bytes = 0.0, 0

    def count(self, size_bytes: int, waited_s: float) -> None:
        """Raises: httpcore.ReadTimeout, when the window has ended and too little was sent in it."""
        self._waited_s += waited_s
        self._bytes += size_bytes
        if self._waited_s < WINDOW_S:
            return
        if self._bytes < LEAST_BYTES_PER_S * self._waited_s:
            raise httpcore.ReadTimeout(
                f"has sent {self._bytes} bytes in {self._waited_s:.0f} s; at least "
                f"{LEAST_BYTES_PER_S} bytes/s are taken"
            )
        self._waited_s, self._bytes = 0.0, 0


class PacedStream(httpcore.NetworkStream):
    """A connection whose reads are counted."""

    def __init__(self, stream: httpcore.NetworkStream, pace: Pace) -> None:
        self._stream, self._pace = stream, pace

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        began = time.monotonic()
        found = self._stream.read(max_bytes, timeout)
        self._pace.count(len(found), time.monotonic() - began)
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return PacedStream(stream, self._pace)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
