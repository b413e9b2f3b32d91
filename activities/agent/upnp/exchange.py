"""HTTP with a router, which is not trusted: bounded in time and bytes, and with no other host."""

from __future__ import annotations

import socket
import time
import urllib.parse
from typing import Dict, List, NamedTuple, Tuple

MOST_BYTES = 128 * 1024
MOST_HEAD_BYTES = 16 * 1024
MOST_PATH_CHARACTERS = 512
ONE_WAIT_S = 4.0


class RouterError(Exception):
    """The router cannot be asked or says no; the message says why, for the machine's owner."""


class Deadline:
    """The instant at which everything that was begun with the router is given up."""

    def __init__(self, limit_s: float) -> None:
        self._end_s = time.monotonic() + limit_s

    def left_s(self, most_s: float = ONE_WAIT_S) -> float:
        """How long one wait may take. Raises: RouterError, when no time is left."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise RouterError("the router did not answer in time")
        return min(left_s, most_s)


class Place(NamedTuple):
    """Where a document or a service of the router is; `host` is an IPv4 address."""

    host: str
    port: int
    path: str


def place_of(url: str, router: str) -> Place:
    """The place of a URL that the router names. Raises: RouterError, for any that is not on it.

    Else a hostile answer could have this machine send requests to other hosts.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or 80
    except ValueError:
        raise RouterError("the router names an address that is none") from None
    path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    if parts.scheme != "http" or parts.hostname != router or parts.username is not None:
        raise RouterError("the router names an address that is not its own, %s" % router)
    if len(path) > MOST_PATH_CHARACTERS or not all("!" <= letter <= "~" for letter in path):
        raise RouterError("the router names an address that is none")
    return Place(router, port, path)


def ask(place: Place, head: str, body: bytes, deadline: Deadline) -> Tuple[int, bytes]:
    """Send one request; return the status and the body of the answer.

    head: the method, and further header lines, as `POST\\r\\nSOAPAction: …`.
    Raises: RouterError, when the router does not answer, or not in bounds, or sends elsewhere.
    """
    method, _, lines = head.partition("\r\n")
    request = "%s %s HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n%s" % (
        method,
        place.path,
        place.host,
        place.port,
        lines + "\r\n" if lines else "",
    )
    length = "Content-Length: %d\r\n" % len(body) if body else ""
    try:
        with socket.create_connection((place.host, place.port), deadline.left_s()) as connection:
            connection.settimeout(deadline.left_s())
            connection.sendall((request + length + "\r\n").encode("ascii") + body)
            status, content = _Answer(connection, deadline).read()
    except (OSError, ValueError) as error:
        raise RouterError("the router does not answer: %s" % error) from None
    if 300 <= status < 400:
        raise RouterError("the router sends elsewhere, with status %d" % status)
    return status, content


class _Answer:
    """The answer on a connection, read within the deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._read = b""
        self._bytes = 0

    def read(self) -> Tuple[int, bytes]:
        """The status and the body. Raises: OSError, ValueError, RouterError."""
        head = self._until(b"\r\n\r\n", MOST_HEAD_BYTES).decode("latin-1").split("\r\n")
        words = head[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):
            raise ValueError("it does not speak HTTP")
        named = (line.partition(":") for line in head[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in named}
        return int(words[1]), self._body(headers)

    def _body(self, headers: Dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks()
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        while self._more():
            pass
        return self._read

    def _chunks(self) -> bytes:
        found: List[bytes] = []
        while True:
            size = int(self._until(b"\r\n", 256).split(b";")[0], 16)
            if size == 0:
                return b"".join(found)
            found.append(self._exactly(size))
            self._exactly(2)

    def _until(self, end: bytes, most_bytes: int) -> bytes:
        while end not in self._read:
            if len(self._read) > most_bytes or not self._more():
                raise ValueError("its answer has no end")
        found, _, self._read = self._read.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        if not 0 <= size <= MOST_BYTES:
            raise ValueError("its answer has %d bytes" % size)
        while len(self._read) < size:
            if not self._more():
                raise ValueError("its answer breaks off")
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _more(self) -> bool:
        """Read on. False: the router has closed. Raises: ValueError, when it sends too much."""
        self._connection.settimeout(self._deadline.left_s())
        received = self._connection.recv(16384)
        self._read += received
        self._bytes += len(received)
        if self._bytes > MOST_BYTES + MOST_HEAD_BYTES:
            raise ValueError("its answer has more than %d bytes" % MOST_BYTES)
        return bool(received)
