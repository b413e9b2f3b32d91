"""No machine fills our memory, and none makes us read what is no answer of the agent."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncssh
import pytest

from activities.settings import settings
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import AgentBroke, AgentRefused
from activities.transport.frames import BeatFrame, ExitFrame, Frame, LogFrame, frames
from activities.transport.ssh import NodeConnections
from tests.failure.hostile_node import HostileNode, Words, answer, hostile_node
from workflows.contracts.base import MOST_SECONDS

MIB = 1 << 20
ENDLESS = 300
"""So many MiB says a machine that never stops; what it could say is far more than what is read."""
WINDOWS = 24
"""So many MiB may be under way in buffers when nobody reads any more."""


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostileNode]:
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.1/32")
    settings.cache_clear()
    async with hostile_node() as found:
        yield found


async def call(node: HostileNode, verb: str) -> dict[str, Any]:
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    try:
        endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
        return await pool.call(endpoint, verb, {}, limit_s=30)
    finally:
        await pool.close()


async def test_an_answer_without_an_end_is_not_read_to_its_end(node: HostileNode) -> None:
    node.says["status"] = Words(b"x" * MIB, repeat=ENDLESS)
    with pytest.raises(AgentBroke, match="more than 1048576 bytes"):
        await call(node, "status")
    assert node.said_bytes < WINDOWS * MIB


async def test_a_line_of_progress_without_an_end_is_not_kept(node: HostileNode) -> None:
    node.says["status"] = answer(boot_id="1")
    node.says["status"] = Words(node.says["status"].out, err=b"x" * (8 * MIB) + b"\nlast\n")
    heard: list[str] = []
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
    await pool.call(endpoint, "status", {}, limit_s=30, on_progress=heard.append)
    await pool.close()
    assert heard[-1] == "last"
    assert max(map(len, heard)) <= 1000


@pytest.mark.parametrize("out", [b"[]", b"7", b"[" * 100_000, b"\xff\xfe", b"", b'{"ok": 1}'])
async def test_what_is_no_answer_is_told_as_a_broken_agent_or_a_refusal(
    node: HostileNode, out: bytes
) -> None:
    node.says["status"] = Words(out)
    with pytest.raises((AgentBroke, AgentRefused)):
        await call(node, "status")


async def parsed(*chunks: bytes) -> list[Frame]:
    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [frame async for frame in frames(source())]


def header(**words: Any) -> bytes:
    return json.dumps(words).encode() + b"\n"


BROKEN = (
    b"x" * (64 << 10),
    b"no json\n",
    b"[]\n",
    b"{}\n",
    b"[" * 60_000 + b"\n",
    header(kind="log", run_id="r", offset=0, length=MIB + 1),
    header(kind="log", run_id="r", offset=0, length=-1),
    header(kind="log", run_id="r", offset=-1, length=0),
    header(kind="log", run_id="r", offset=1 << 60, length=0),
    header(kind="log", run_id="r" * 200, offset=0, length=0),
    header(kind="log", run_id=7, offset=0, length=0),
    header(kind="exit", run_id="r", exit=[], log_bytes=0),
    header(kind="exit", run_id="r", exit={"exit_code": 10**40}, log_bytes=0),
    header(kind="exit", run_id="r", exit={"exit_code": "x"}, log_bytes=0),
    header(kind="exit", run_id="r", exit={}, log_bytes="many"),
)


@pytest.mark.parametrize("said", BROKEN, ids=range(len(BROKEN)))
async def test_what_is_no_frame_ends_the_watch_with_its_reason(said: bytes) -> None:
    with pytest.raises(AgentBroke, match="watcher said"):
        await parsed(said)
    with pytest.raises(AgentBroke, match="watcher said"):
        await parsed(*(said[start : start + 4096] for start in range(0, len(said), 4096)))


async def test_frames_of_a_watcher_are_read_with_their_numbers_bounded() -> None:
    ended = {"exit_code": 0, "elapsed_s": 1e300, "message": "x" * 50_000, "unknown": 1}
    said = (
        header(kind="beat")
        + header(kind="news", of="a later release")
        + header(kind="log", run_id="r", offset=5, length=3)
        + b"abc"
        + header(kind="exit", run_id="r", exit=ended, log_bytes=8)
    )
    beat, news, log, exited = await parsed(*(said[at : at + 1] for at in range(len(said))))
    assert (beat, news, log) == (BeatFrame(), BeatFrame(), LogFrame("r", 5, b"abc"))
    assert isinstance(exited, ExitFrame)
    assert exited.exit["elapsed_s"] == MOST_SECONDS
    assert len(exited.exit["message"]) == 2000
    assert "unknown" not in exited.exit
