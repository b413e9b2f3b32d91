"""A session at its site ends with either of its ends, also while nobody reads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from websockets.asyncio.server import ServerConnection, serve

from activities.site.answers.session_frames import SessionFrame
from activities.site.sessions import node_session, serving
from activities.site.sessions.lines import open_line
from activities.site.sessions.node_session import NodeSession


class FullSession:
    """A session whose command neither reads nor says anything."""

    def __init__(self) -> None:
        self.is_full = asyncio.Event()
        self.frames = silence()
        self.writes = 0

    async def data(self, content: bytes) -> None:
        del content
        self.is_full.set()
        self.writes += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.writes -= 1


async def silence() -> AsyncIterator[SessionFrame]:
    await asyncio.Event().wait()
    yield  # type: ignore[misc]


async def test_a_person_who_leaves_a_command_that_does_not_read_ends_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "REST_S", 0.1, raising=False)
    session: Any = FullSession()

    async def person(socket: ServerConnection) -> None:
        await socket.send(b"\0more")
        await session.is_full.wait()
        await socket.close()

    async with serve(person, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with await open_line(f"http://127.0.0.1:{port}/", "token") as line:
            carried: NodeSession = session
            await asyncio.wait_for(serving._carry(line, carried), 20)
    assert session.is_full.is_set()
    assert session.writes == 0, "nothing is still being written to the command"


async def test_a_node_that_never_says_that_a_session_has_begun_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_session, "BEGIN_LIMIT_S", 0.1)
    with pytest.raises(ApplicationError, match="no answer of the node"):
        await node_session._first(silence(), "run_command")
