"""A web server of files, with ETags and ranges, which can break off, lead elsewhere and fail."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any


@dataclass
class FileServer:
    """The files by their paths, and what goes wrong with them."""

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    """The paths that are answered with an error."""
    breaks_after: list[int] = field(default_factory=list)
    """After how many bytes of the body each of the next answers breaks off."""
    has_ranges: bool = True
    bytes_per_s: int = 0
    """How fast bodies are sent; 0: as fast as they can be."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Each path that was asked for, and its `Range`."""
    sent: list[str] = field(default_factory=list)
    """Each path whose body was sent to its end."""
    authorizations: set[str] = field(default_factory=set)
    """Each `Authorization` that was sent; empty: none."""
    port: int = 0
    sent_to: list[str] = field(default_factory=list)
    """Each path to which a whole file was sent."""
    loses: int = 0
    """How many of the next files that are sent here are stored, and not answered."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def take(self, path: str, headers: Message, body: BufferedIOBase) -> int | None:
        """Keep a file that is sent here; the status of the answer. None: the answer is lost."""
        self.authorizations.add(headers.get("Authorization", ""))
        content = body.read(int(headers["Content-Length"]))
        if status := self.statuses.get(path):
            return status
        self.files[path] = content
        self.sent_to.append(path)
        if self.loses:
            self.loses -= 1
            return None
        return 201

    @contextmanager
    def serving(self) -> Iterator["FileServer"]:
        handler = type("Handler", (_Handler,), {"files": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    files: FileServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked_range = self.headers.get("Range", "")
        self.files.asked.append((self.path, asked_range))
        self.files.authorizations.add(self.headers.get("Authorization", ""))
        if self.path in self.files.redirects:
            self._answer(302, {"Location": self.files.redirects[self.path]}, b"")
            return
        if self.path in self.files.statuses or self.path not in self.files.files:
            self._answer(self.files.statuses.get(self.path, 404), {}, b"no")
            return
        self._send(self.files.files[self.path], asked_range)

    def do_PUT(self) -> None:
        if self.path in self.files.redirects:
            self.close_connection = True  # As a server that does not read what is refused.
            self._answer(307, {"Location": self.files.redirects[self.path]}, b"")
            return
        if status := self.files.take(self.path, self.headers, self.rfile):
            self._answer(status, {}, b"" if status == 201 else b"no")
        self.close_connection = self.close_connection or status is None

    def _send(self, content: bytes, asked_range: str) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        if not self.files.has_ranges:
            self._answer(200, {"ETag": etag}, content)
            return
        headers = {"ETag": etag, "Accept-Ranges": "bytes"}
        if asked_range and self.headers.get("If-Range") == etag:
            begin = int(asked_range.removeprefix("bytes=").removesuffix("-"))
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self._answer(206, headers, content[begin:])
            return
        self._answer(200, headers, content)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body
        # A look reads nothing of a body; only a reader asks for the rest of one.
        if self.files.breaks_after and len(body) > self.files.breaks_after[0]:
            sent = body[: self.files.breaks_after[0]]
        try:
            self._write(sent)
        except OSError:
            return
        if len(sent) < len(body):
            self.close_connection = True
        else:
            self.files.sent.append(self.path)

    def _write(self, body: bytes) -> None:
        if not self.files.bytes_per_s:
            self.wfile.write(body)
            return
        step = max(1, self.files.bytes_per_s // 20)
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            threading.Event().wait(0.05)  # What a slow line takes.

    def log_message(self, *_: Any) -> None:
        return
