"""The connections of the API to the ports of jobs: none is kept that nobody uses any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.requests import Request
from starlette.websockets import WebSocketState

from api.problems import Problem
from api.sessions import connections, proxy
from api.sessions.connections import open_port
from api.sessions.lines import SiteLine
from api.sessions.proxy import JobPages, Page
from api.sessions.switchboard import RunPlace
from tests.waiting import eventually
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.sessions import Eof, Opened

NODE = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=22, minion_id="SHA256:x")
PLACE = RunPlace("job-1", "acc-1", "job-1-0-1", NODE, 8888)
PAGE = Page(PLACE, 8888, None)
REDIRECT = (
    b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\nContent-Length: 0\r\n\r\n"
)
FOUND = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfound"


class SiteSocket:
    """The socket of a site that carries one connection to a port of this process."""

    def __init__(self, port: int, *, is_silent: bool) -> None:
        self.client_state = WebSocketState.CONNECTED
        self._port, self._is_silent = port, is_silent
        self._said: list[Any] = [{"type": "websocket.receive", "text": Opened().model_dump_json()}]
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.lost = asyncio.Event()

    async def receive(self) -> Any:
        if self._is_silent:
            await self.lost.wait()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            return self._said.pop()
        if not self._said:
            reading = asyncio.ensure_future(self._streams[0].read(1 << 16))
            losing = asyncio.ensure_future(self.lost.wait())
            await asyncio.wait((reading, losing), return_when=asyncio.FIRST_COMPLETED)
            losing.cancel()
            if reading.done() and reading.result():
                return {"type": "websocket.receive", "bytes": b"\1" + reading.result()}
            reading.cancel()
            self._said.append({"type": "websocket.disconnect"})
            return {"type": "websocket.receive", "text": Eof().model_dump_json()}
        await self.lost.wait()
        return self._said[0]

    async def send_bytes(self, content: bytes) -> None:
        assert self._streams is not None
        self._streams[1].write(content[1:])

    async def send_text(self, content: str) -> None:
        del content

    async def close(self) -> None:
        self.lost.set()
        if self._streams is not None:
            self._streams[1].close()


class Sites:
    """What opens lines in the place of the switchboard, with every line that it has given."""

    def __init__(self, port: int) -> None:
        self.lines: list[SiteLine] = []
        self.sockets: list[SiteSocket] = []
        self.is_silent = False
        self._port = port
        self._routes: list[asyncio.Task[None]] = []

    async def open(self, *_: object) -> SiteLine:
        socket = SiteSocket(self._port, is_silent=self.is_silent)
        line = SiteLine(socket)  # type: ignore[arg-type]
        self.sockets.append(socket)
        self.lines.append(line)
        self._routes.append(asyncio.create_task(line.wait_closed()))
        return line

    def open_lines(self) -> int:
        return sum(not line.closed.is_set() for line in self.lines)


@asynccontextmanager
async def serving(thinks: asyncio.Event | None = None) -> AsyncIterator[Sites]:
    """A job that answers at its port, and the lines to it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if thinks is not None and b"/slow" in head:
                    await thinks.wait()
                writer.write(REDIRECT if b"/out" in head else FOUND)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sites = Sites(server.sockets[0].getsockname()[1])
    try:
        yield sites
    finally:
        for socket in sites.sockets:
            await socket.close()
        server.close()


async def allowed() -> None:
    """The check of a person who may see the page."""


async def ask(pages: JobPages, path: str, *, leaves: bool = False) -> bytes:
    """What a person gets; leaves: they have gone before the job answers."""
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [],
             "asgi": {"version": "3.0", "spec_version": "2.3"}, "server": ("api", 80),
             "scheme": "http"}  # fmt: skip
    content = bytearray()

    async def receive() -> Any:
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        content.extend(message.get("body", b""))

    response = await pages.answer(Request(scope), PAGE, path, allowed)
    await response(scope, receive, send)
    return bytes(content)


@pytest.fixture(autouse=True)
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "MOST_CONNECTIONS", 2)


async def test_answers_that_are_refused_keep_no_connection_from_others() -> None:
    async with serving() as sites, asyncio.timeout(20):
        pages = JobPages(sites)  # type: ignore[arg-type]
        for _ in range(5):
            with pytest.raises(Problem, match="redirects out"):
                await ask(pages, "/out")
        assert await ask(pages, "/") == b"found"


async def test_people_who_leave_while_a_job_thinks_keep_no_connection_from_others() -> None:
    thinks = asyncio.Event()
    async with serving(thinks) as sites, asyncio.timeout(20):
        pages = JobPages(sites)  # type: ignore[arg-type]
        asked = [asyncio.create_task(ask(pages, "/slow", leaves=True)) for _ in range(2)]
        await eventually(lambda: len(sites.lines) == 2, "both are asked")
        thinks.set()
        await asyncio.gather(*asked)
        assert await ask(pages, "/") == b"found"


async def test_connections_that_nobody_uses_are_closed_without_a_further_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy, "KEEP_S", 0.1)
    async with serving() as sites:
        pages = JobPages(sites)  # type: ignore[arg-type]
        assert await ask(pages, "/") == b"found"
        assert sites.open_lines() == 1
        await eventually(lambda: sites.open_lines() == 0, "it is closed")


async def test_a_line_that_its_site_has_left_is_closed_whoever_still_holds_it() -> None:
    async with serving() as sites:
        stream = await open_port(sites, PLACE, 8888)  # type: ignore[arg-type]
        await sites.sockets[0].close()
        await eventually(lambda: sites.open_lines() == 0, "it is closed")
        assert await stream.read(1) == b""


async def test_who_does_not_wait_for_a_port_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as sites:
        sites.is_silent = True
        asking = asyncio.create_task(open_port(sites, PLACE, 8888))  # type: ignore[arg-type]
        await eventually(lambda: len(sites.lines) == 1, "it is asked")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        monkeypatch.setattr(connections, "OPEN_LIMIT_S", 0.1)
        with pytest.raises(Problem, match="was lost"):
            await open_port(sites, PLACE, 8888)  # type: ignore[arg-type]
        assert sites.open_lines() == 0
