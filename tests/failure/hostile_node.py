"""A machine whose owner says over SSH whatever a test chooses, to every verb of the agent.

Behind real SSH with a host key there is no agent: each verb answers with bytes from `says`.
"""

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh

from activities.transport.agent_archive import agent_archive
from workflows.contracts.nodes import NodeAddress

_MARK = re.compile(r"baseload-[0-9a-f]{24}")
_CHUNK_BYTES = 1 << 20

Process = asyncssh.SSHServerProcess[bytes]


@dataclass(frozen=True)
class Words:
    """What a verb of the machine says.

    repeat: how often `out` is said; err_repeat: how often `err` is, before it. stays: whether the
    verb goes on until its caller leaves. takes: whether it takes the bytes that follow the request
    before it says anything.
    """

    out: bytes = b""
    err: bytes = b""
    status: int = 0
    repeat: int = 1
    err_repeat: int = 1
    stays: bool = False
    takes: bool = False


def answer(**words: Any) -> Words:
    """The answer of a verb that has done what it was asked."""
    return Words(json.dumps({"ok": True, **words}).encode() + b"\n")


def frame(payload: bytes = b"", **header: Any) -> bytes:
    """One frame of a watcher."""
    return json.dumps(header).encode() + b"\n" + payload


@dataclass
class HostileNode:
    """One machine: what it says to each verb, and what it was asked.

    said_bytes: how much it has said so far, before its caller went away.
    """

    says: dict[str, Words] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    said_bytes: int = 0
    port: int = 0
    minion_id: str = ""

    def address(self, node_id: str, region_id: str) -> NodeAddress:
        """The machine as a node of that id."""
        return NodeAddress(
            node_id=node_id,
            region_id=region_id,
            host="127.0.0.1",
            port=self.port,
            minion_id=self.minion_id,
        )

    async def _serve(self, process: Process) -> None:
        script = shlex.split(process.command or "")[-1]
        process.stdout.write(f"\n{(_MARK.search(script) or [''])[0]}\n".encode())
        if "sha256sum" in script:
            process.stdout.write(f"/double\npython3\n{agent_archive().sha256}\n".encode())
            process.exit(0)
            return
        verb = shlex.split(script)[-1]
        self.asked.append((verb, json.loads(await process.stdin.readline())))
        words = self.says.get(verb, answer())
        with contextlib.suppress(ConnectionError, asyncssh.Error):
            if words.takes:
                await process.stdin.read()
            await self._say(process, words)
            while words.stays and (line := await process.stdin.readline()):
                self.asked.append((verb, json.loads(line)))
        process.exit(words.status)

    async def _say(self, process: Process, words: Words) -> None:
        for number in range(words.err_repeat):
            process.stderr.write(words.err)
            if number:
                await process.stderr.drain()
                self.said_bytes += len(words.err)
        for _ in range(words.repeat):
            for begin in range(0, len(words.out), _CHUNK_BYTES):
                chunk = words.out[begin : begin + _CHUNK_BYTES]
                process.stdout.write(chunk)
                await process.stdout.drain()
                self.said_bytes += len(chunk)


class _Anybody(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


@contextlib.asynccontextmanager
async def hostile_node(files: Path | None = None) -> AsyncIterator[HostileNode]:
    """A machine that answers SSH until the block ends.

    files: the folder that it shows as its whole disk over SFTP; None: it has no SFTP.
    """
    node = HostileNode()
    key = asyncssh.generate_private_key("ssh-ed25519")
    serving: set[asyncio.Task[None]] = set()

    async def serve(process: Process) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await node._serve(process)
        finally:
            serving.discard(task)

    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=_Anybody,
        server_host_keys=[key],
        process_factory=serve,
        encoding=None,
        compression_algs=None,
        sftp_factory=None if files is None else partial(asyncssh.SFTPServer, chroot=bytes(files)),
    )
    node.port, node.minion_id = listener.get_port(), key.get_fingerprint("sha256")
    try:
        yield node
    finally:
        listener.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await listener.wait_closed()
