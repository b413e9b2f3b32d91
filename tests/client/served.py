"""Servers on free ports: the real API, and one that misbehaves as it is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

LIMIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Raises: AssertionError, naming `what`, when the condition does not hold in time."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.01)


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The application over real HTTP, in a thread; its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.start()
        wait_until(lambda: server.started, "server: started")
        try:
            yield address
        finally:
            server.servers[0].get_loop().call_soon_threadsafe(app.state.stop.set)
            server.should_exit = True
            thread.join(10)


@dataclass(frozen=True)
class Asked:
    """One request as it arrived; names of headers in small letters."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Script:
    """A server that gives the next of its answers to each request, then closes the connection.

    An answer is the raw bytes to send; empty, the connection is closed without an answer.
    """

    answers: list[bytes]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[Script]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            thread = threading.Thread(target=_serve, args=(listening, self))
            thread.start()
            try:
                yield self
            finally:
                listening.shutdown(socket.SHUT_RDWR)
                thread.join(10)


def _serve(listening: socket.socket, script: Script) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            asked = _read(connection)
            if asked is None:
                continue
            script.asked.append(asked)
            answer = script.answers.pop(0) if script.answers else b""
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)


def _read(connection: socket.socket) -> Asked | None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            return None
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, target, _ = first.split(" ")
    return Asked(method, target, headers, body)


def answer(status: int, body: str, *headers: str, kind: str = "application/json") -> bytes:
    """A whole answer."""
    content = body.encode()
    lines = [
        f"HTTP/1.1 {status} Said",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def stream(*events: str, cut: bool = False) -> bytes:
    """A stream of events; cut: in the middle of a chunk, as when a process is killed."""
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunks = "".join(f"{len(event.encode()):x}\r\n{event}\r\n" for event in events)
    return (head + chunks + ("ff\r\ndata: lost" if cut else "0\r\n\r\n")).encode()


Run = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str
