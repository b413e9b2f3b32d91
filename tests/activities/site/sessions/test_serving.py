"""A session at its site ends with either of its ends, also while nobody reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from websockets.asyncio.server import ServerConnection, serve

from activities.site import device_logs
from activities.site.answers.session_frames import SessionFrame
from activities.site.run_names import RunNames
from activities.site.sessions import node_session, serving
from activities.site.sessions.lines import open_line
from activities.site.sessions.node_session import NodeSession
from activities.transport.stream import AGENT_REFUSED
from tests.activities.hostile_sites import HostileSite
from tests.failure.hostile_node import Words, frame
from tests.waiting import eventually
from workflows.contracts.devices import device_run_id
from workflows.contracts.sessions import (
    DeviceLogRequest,
    Eof,
    LogPlace,
    Opened,
    Refused,
    read_message,
)


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


async def heard_of(hostile: HostileSite, words: Words, **asked: Any) -> list[Any]:
    """All that the API hears on the line of a log that the device says."""
    heard: list[Any] = []
    hostile.machine.says["read_device_log"] = words

    async def api(socket: ServerConnection) -> None:
        heard.extend(
            [said if isinstance(said, bytes) else read_message(said) async for said in socket]
        )

    async with serve(api, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with await open_line(f"http://127.0.0.1:{port}/", "token") as line:
            request = DeviceLogRequest(lines=10, **asked)
            await serving.serve_session(line, hostile.node, hostile.node.node_id, request)
        await eventually(lambda: not server.connections, "the line is closed")
    return heard


def log_frame(hostile: HostileSite, content: bytes, offset: int) -> bytes:
    name = RunNames(hostile.node).of(device_run_id(hostile.node.node_id, 3))
    return frame(content, kind="log", run_id=name, offset=offset, length=len(content))


async def test_the_log_of_a_device_is_said_with_the_places_of_its_bytes(
    hostile: HostileSite,
) -> None:
    pieces = [(b"one", 0), (b"two", 3), (b"gap", 90)]
    words = b"".join(log_frame(hostile, *each) for each in pieces)
    places = {offset: LogPlace(number=3, offset=offset) for offset in (0, 90)}
    assert await heard_of(hostile, Words(words)) == [
        Opened(), places[0], b"\1one", b"\1two", places[90], b"\1gap", Eof(),
    ]  # fmt: skip


async def test_a_device_that_falls_silent_breaks_its_log_off_and_does_not_end_it(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "SILENCE_S", 0.3)
    words = Words(log_frame(hostile, b"one", 0), stays=True)
    heard = await heard_of(hostile, words, follow=True)
    assert heard[:3] == [Opened(), LogPlace(number=3, offset=0), b"\1one"]
    assert isinstance(heard[3], Refused)
    assert (heard[3].code, "silent" in heard[3].detail, len(heard)) == ("node-lost", True, 4)


async def test_a_device_without_a_log_opens_nothing(hostile: HostileSite) -> None:
    no_log = {"ok": False, "error": {"code": "no-log", "message": "it has no log\x1b[2J"}}
    words = Words(err=json.dumps(no_log).encode() + b"\n", status=AGENT_REFUSED)
    (said,) = await heard_of(hostile, words)
    assert isinstance(said, Refused)
    assert (said.code, "it has no log" in said.detail) == ("no-log", True)
    assert "\x1b" not in said.detail


async def test_a_node_that_never_says_that_a_session_has_begun_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_session, "BEGIN_LIMIT_S", 0.1)
    with pytest.raises(ApplicationError, match="no answer of the node"):
        await node_session._first(silence(), "run_command")
