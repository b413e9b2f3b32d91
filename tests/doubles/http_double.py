"""A double of an HTTP API on a loopback port: a function from requests to answers."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request; the names of its headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def range_of(self, size: int) -> tuple[int, int] | None:
        """The first byte asked for, and the one behind the last; None: all are."""
        said = self.headers.get("x-ms-range") or self.headers.get("range")
        if not said:
            return None
        first, _, last = said.removeprefix("bytes=").partition("-")
        return int(first), min(int(last) + 1 if last else size, size)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    is_lost: bool = False
    """Whether the connection is closed instead."""


def part_of(content: bytes, asked: Asked, headers: Mapping[str, str]) -> Answer:
    """The bytes of a content that a request asks for."""
    found = asked.range_of(len(content))
    if found is None:
        return Answer(200, content, headers)
    begin, end = found
    said = {"Content-Range": f"bytes {begin}-{end - 1}/{len(content)}"}
    return Answer(206, content[begin:end], {**headers, **said})


@dataclass
class Faults:
    """What goes wrong with the next requests that change something, in this order."""

    before: list[int] = field(default_factory=list)
    """The statuses that the next ones are answered with, and nothing is done; 0: it is done."""
    lost: list[bool] = field(default_factory=list)
    """Whether the next ones that are done are not answered."""

    def refusal(self) -> int:
        """The status with which a request is refused; 0: it is done."""
        return self.before.pop(0) if self.before else 0

    def after(self, answer: Answer) -> Answer:
        """The answer of a request that was done, or its loss."""
        return Answer(is_lost=True) if self.lost and self.lost.pop(0) else answer


@contextmanager
def serving(answer: Callable[[Asked], Answer], port: int = 0) -> Iterator[str]:
    """The base URL of the double, for as long as it is held; port 0: any free one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def do_PATCH(self) -> None:
            self._serve()

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            body = self.rfile.read(length)
            given = answer(Asked(self.command, parts.path, query, headers, body))
            if given.is_lost:
                self.close_connection = True
                return
            self.send_response(given.status)
            for name, value in (given.headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
