"""No machine fills our memory, whatever it says."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import asyncssh
import pytest

from activities.settings import settings
from activities.transport import ssh, stream
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import AgentBroke, AgentRefused, OutcomeUnknown, ProtocolViolation
from activities.transport.ssh import NodeConnections
from tests.failure.hostile_node import HostileNode, Words, answer, hostile_node

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


async def call(node: HostileNode, verb: str) -> bytes:
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    try:
        endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
        return await pool.call(endpoint, verb, {}, limit_s=30)
    finally:
        await pool.close()


async def test_an_answer_without_an_end_is_not_read_to_its_end(node: HostileNode) -> None:
    node.says["status"] = Words(b"x" * MIB, repeat=ENDLESS)
    with pytest.raises(ProtocolViolation, match="at most 1048576 bytes"):
        await call(node, "status")
    assert node.said_bytes < WINDOWS * MIB


async def test_a_line_of_progress_without_an_end_is_not_kept(node: HostileNode) -> None:
    node.says["status"] = answer(boot_id="1")
    node.says["status"] = Words(node.says["status"].out, err=b"x" * (32 * MIB) + b"\nlast\n")
    heard: list[str] = []
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
    tracemalloc.start()
    try:
        await pool.call(endpoint, "status", {}, limit_s=30, on_progress=heard.append)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await pool.close()
    assert heard[-1] == "last"
    assert max(map(len, heard)) <= 1000
    assert peak < 2 * len(node.says["status"].err), "what the machine holds, and little of it here"


async def test_progress_of_nothing_but_lines_is_not_told_line_by_line(node: HostileNode) -> None:
    said = answer(boot_id="1")
    node.says["status"] = Words(said.out, err=b"\n" * MIB + b"last\n")
    heard: list[str] = []
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
    await pool.call(endpoint, "status", {}, limit_s=30, on_progress=heard.append)
    await pool.close()
    assert heard[-1] == "last"
    assert len(heard) < 5000


@pytest.mark.parametrize("way", ["call", "stream"])
async def test_a_machine_that_says_nothing_but_progress_is_read_slowly(
    node: HostileNode, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(stream, "STDERR_AT_ONCE_BYTES", MIB)
    read = []
    paced = stream.paced

    async def counted(reader: asyncssh.SSHReader[bytes], most_bytes: int) -> AsyncIterator[bytes]:
        async for chunk in paced(reader, most_bytes):
            read.append(len(chunk))
            yield chunk

    for module in (stream, ssh):
        monkeypatch.setattr(module, "paced", counted)
    node.says["watch"] = Words(err=b"x" * MIB, err_repeat=ENDLESS)
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
    try:
        if way == "call":
            with pytest.raises(OutcomeUnknown, match="no answer within"):
                await pool.call(endpoint, "watch", {}, limit_s=3)
        else:
            async with await pool.stream(endpoint, "watch", {}) as said:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(3):
                        assert [chunk async for chunk in said] == []
    finally:
        await pool.close()
    assert sum(read) < 16 * MIB  # The rest waits at the machine.


async def test_words_that_end_without_an_answer_are_told_as_a_broken_agent(
    node: HostileNode,
) -> None:
    node.says["status"] = Words(b" \n")
    with pytest.raises(AgentBroke, match="without an answer"):
        await call(node, "status")


async def test_a_refusal_of_a_stream_is_handed_over_unread(node: HostileNode) -> None:
    node.says["read_log"] = Words(err=b"some noise\n{no json\n", status=3)
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    endpoint = NodeEndpoint.of(node.address("nod-hostile", "reg-1"))
    with pytest.raises(AgentRefused) as caught:
        async with await pool.stream(endpoint, "read_log", {}) as refused:
            assert [chunk async for chunk in refused] == []
    await pool.close()
    assert caught.value.said == b"{no json"
