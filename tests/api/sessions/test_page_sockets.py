"""WebSockets of the pages of jobs end when who opened them may not reach the job any more."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from starlette.datastructures import URL, Headers
from starlette.websockets import WebSocket
from websockets.asyncio.server import ServerConnection, serve

from api.problems import Problem
from api.sessions import proxy
from api.sessions.proxy import JobPages, Page
from api.sessions.switchboard import RunPlace, Switchboard
from workflows.contracts.nodes import NodeAddress

NODE = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=22, minion_id="SHA256:x")
PLACE = RunPlace("job-1", "acc-1", "job-1-0-1", NODE, 8888)


class Browser:
    """A WebSocket of a person who says nothing."""

    url = URL("ws://job-1.jobs.example/")
    headers = Headers()

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.accepted = asyncio.Event()
        self.code: int | None = None

    async def accept(self, _: str | None) -> None:
        self.accepted.set()

    async def receive(self) -> dict[str, Any]:
        said: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        return await said

    async def close(self, code: int) -> None:
        self.code = code


async def _echo(connection: ServerConnection) -> None:
    await connection.wait_closed()


async def test_a_revoked_key_ends_an_open_websocket_of_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revoked = asyncio.Event()

    async def check() -> None:
        if revoked.is_set():
            raise Problem("unauthorized", "the key is unknown or revoked")

    @asynccontextmanager
    async def as_socket(port: int) -> AsyncGenerator[Any]:
        with socket.create_connection(("127.0.0.1", port)) as pair:
            yield pair

    async with serve(_echo, "127.0.0.1", 0) as job:
        port = next(iter(job.sockets)).getsockname()[1]

        async def open_port(*_: object) -> int:
            return int(port)

        monkeypatch.setattr(proxy, "open_port", open_port)
        monkeypatch.setattr(proxy, "as_socket", as_socket)
        monkeypatch.setattr(proxy, "CHECK_INTERVAL_S", 0.05)
        browser, page = Browser(), Page(PLACE, port, None)
        pages = JobPages(Switchboard())
        open_ = asyncio.create_task(pages.splice(cast("WebSocket", browser), page, "/", check))
        await asyncio.wait_for(browser.accepted.wait(), 10)
        done, _ = await asyncio.wait({open_}, timeout=0.3)  # Several checks, which find nothing.
        assert not done
        revoked.set()
        await asyncio.wait_for(open_, 10)
    assert browser.code == 1008
