"""One watcher per node: every byte of every log once and in order, and every exit after it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.site.answers.frames import (
    BeatFrame,
    ExitFrame,
    Frame,
    LogFrame,
    LostFrame,
    frames,
)
from activities.site.answers.reading import Speaker
from activities.site.answers.verbs import RunExit
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import OutcomeUnknown
from activities.transport.ssh import NodeConnections
from activities.transport.stream import NodeStream
from tests.activities.agent.agent_process import spec
from tests.activities.sshd import Sshd
from tests.activities.waiting import wait_until


class Node:
    """A node as the control plane uses it, and what its watcher has said so far."""

    def __init__(self, connections: NodeConnections, endpoint: NodeEndpoint) -> None:
        self.connections = connections
        self.endpoint = endpoint
        self.logs: dict[str, bytearray] = {}
        self.exits: dict[str, RunExit] = {}
        self.lost: dict[str, LostFrame] = {}
        self.beats = 0

    async def run(self, run_id: str, command: str) -> None:
        request = {"run_id": run_id, "spec": spec(command)}
        await self.connections.call(self.endpoint, "stage", request, limit_s=120)
        await self.connections.call(self.endpoint, "start", {"run_id": run_id}, limit_s=120)

    async def end(self, run_id: str) -> None:
        await self.connections.call(self.endpoint, "end", {"run_id": run_id}, limit_s=120)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[NodeStream]:
        """Watch from where what has been said so far ends."""
        known = {run_id: len(log) for run_id, log in self.logs.items()}
        stream = await self.connections.stream(self.endpoint, "watch", {"known": known}, eof=False)
        reading = asyncio.create_task(self._read(stream))
        try:
            yield stream
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, OutcomeUnknown):
                await reading
            await stream.close()

    async def _read(self, stream: NodeStream) -> None:
        async for frame in frames(stream, Speaker("nod-1", "watch")):
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        match frame:
            case LogFrame():
                log = self.logs.setdefault(frame.run_id, bytearray())
                assert frame.offset == len(log), "a gap or an overlap"
                log += frame.payload
            case ExitFrame():
                assert frame.log_bytes == len(self.logs.get(frame.run_id, b"")), "an early exit"
                self.exits[frame.run_id] = frame.exit
            case LostFrame():
                self.lost[frame.run_id] = frame
            case BeatFrame():
                self.beats += 1

    async def until_exit(self, run_id: str) -> RunExit:
        await wait_until(lambda: run_id in self.exits, f"the exit of {run_id}", 60)
        return self.exits[run_id]

    async def until_log(self, run_id: str, ending: bytes) -> None:
        await wait_until(
            lambda: self.logs.get(run_id, bytearray()).endswith(ending), f"{ending!r} of {run_id}"
        )

    def path(self, run_id: str, name: str) -> Path:
        return Path(self.endpoint.root) / "runs" / run_id / name


@pytest.fixture
def node(connections: NodeConnections, endpoint: NodeEndpoint) -> Node:
    return Node(connections, endpoint)


async def test_a_line_and_an_exit_arrive(node: Node) -> None:
    async with node.watched():
        await node.run("job-tw-0-1", "until [ -e go ]; do sleep 0.01; done; echo line; exit 4")
        node.path("job-tw-0-1", "work/go").touch()
        await node.until_log("job-tw-0-1", b"line\n")
        assert (await node.until_exit("job-tw-0-1")).exit_code == 4


async def test_the_watch_goes_on_at_the_byte_after_the_connection_was_cut(
    node: Node, sshd: Sshd
) -> None:
    lines = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; touch half\n"
    wait = "until [ -e go ]; do sleep 0.01; done\n"
    async with node.watched():
        await node.run("job-tw-0-1", lines + wait + lines)
        await wait_until(lambda: node.logs.get("job-tw-0-1"), "the first bytes")
        sshd.cut()
    await wait_until(node.path("job-tw-0-1", "work/half").exists, "the first half")
    node.path("job-tw-0-1", "work/go").touch()
    async with node.watched():
        await node.until_exit("job-tw-0-1")
    assert node.logs["job-tw-0-1"] == node.path("job-tw-0-1", "log").read_bytes()
    assert node.logs["job-tw-0-1"].count(b"\n") == 4000


async def test_a_cut_connection_ends_the_stream_as_unknown(node: Node, sshd: Sshd) -> None:
    stream = await node.connections.stream(node.endpoint, "watch", {}, eof=False)
    await wait_until(sshd.sessions, "the connection")
    sshd.cut()
    with pytest.raises(OutcomeUnknown):
        await _read_all(stream)
    await stream.close()


async def _read_all(stream: NodeStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def test_binary_bytes_and_long_lines_arrive_as_they_are(node: Node) -> None:
    await node.run("job-tw-0-1", "head -c 3000000 /dev/urandom; head -c 10000000 /dev/zero")
    async with node.watched():
        await node.until_exit("job-tw-0-1")
    is_same = node.logs["job-tw-0-1"] == node.path("job-tw-0-1", "log").read_bytes()
    assert is_same, "differs"
    assert len(node.logs["job-tw-0-1"]) == 13_000_000


async def test_a_run_that_ended_long_before_is_told_with_all_of_its_log(node: Node) -> None:
    await node.run("job-tw-0-1", "echo early")
    await wait_until(node.path("job-tw-0-1", "exit.json").exists, "the end")
    async with node.watched():
        await node.until_exit("job-tw-0-1")
    assert node.logs["job-tw-0-1"] == b"early\n"


async def test_a_flood_does_not_starve_a_quiet_run(node: Node) -> None:
    async with node.watched():
        await node.run("job-flood-0-1", "while :; do head -c 1000000 /dev/zero; sleep 0.01; done")
        await wait_until(lambda: len(node.logs.get("job-flood-0-1", ())) > 1 << 20, "a flood")
        await node.run("job-hushed-0-1", "until [ -e go ]; do sleep 0.01; done; echo spoken")
        node.path("job-hushed-0-1", "work/go").touch()
        await node.until_log("job-hushed-0-1", b"spoken\n")
        assert bytes(node.logs["job-hushed-0-1"]) == b"spoken\n"
        await node.end("job-flood-0-1")


async def test_runs_can_be_added_and_forgotten_while_watching(node: Node) -> None:
    await node.run("job-tw-0-1", "echo one; until [ -e go ]; do sleep 0.01; done; echo two")
    async with node.watched() as stream:
        await node.until_log("job-tw-0-1", b"one\n")
        await stream.send({"forget": ["job-tw-0-1"]})
        beats = node.beats
        await wait_until(lambda: node.beats > beats, "a beat after it")
        node.path("job-tw-0-1", "work/go").touch()
        await wait_until(node.path("job-tw-0-1", "exit.json").exists, "the end")
        assert node.logs["job-tw-0-1"] == b"one\n"
        await stream.send({"watch": {"job-tw-0-1": 4}})
        await node.until_exit("job-tw-0-1")
    assert node.logs["job-tw-0-1"] == b"one\ntwo\n"


async def test_a_run_without_its_supervisor_is_told_as_lost(node: Node) -> None:
    await node.run("job-tw-0-1", "echo $PPID; sleep 600")
    async with node.watched():
        await node.until_log("job-tw-0-1", b"\n")
        os.kill(int(node.logs["job-tw-0-1"]), 9)
        await wait_until(lambda: "job-tw-0-1" in node.lost, "the loss")
        await node.end("job-tw-0-1")
        exited = await node.until_exit("job-tw-0-1")
    assert exited.reason == "ended-after-supervisor-loss"


async def test_the_watcher_ends_with_its_connection(node: Node) -> None:
    archive = Path(node.endpoint.root, "agent")
    async with node.watched():
        await wait_until(lambda: node.beats, "a beat")
        assert watchers_of(archive)
    await wait_until(lambda: not watchers_of(archive), "the watcher to go")


def watchers_of(archive: Path) -> list[str]:
    """The processes that run a watch from this agent's folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if words[-2:-1] == [b"watch"] and str(archive).encode() in b" ".join(words):
                    found.append(folder.name)
    return found


async def test_a_log_is_read_in_parts(node: Node) -> None:
    await node.run("job-tw-0-1", "printf 0123456789")
    await wait_until(node.path("job-tw-0-1", "exit.json").exists, "the end")
    request = {"run_id": "job-tw-0-1", "offset": 3, "length": 4}
    async with await node.connections.stream(node.endpoint, "read_log", request) as stream:
        assert await _read_all(stream) == b"3456"
