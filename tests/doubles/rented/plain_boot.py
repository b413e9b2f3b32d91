"""Machines as an SSH server each: what they run are processes of ours in a folder of their own.

The start script is not run, because it would write to this host: its one effect that counts here,
the host key that it brings along, is taken from it (`boot.Machine.given_host_key`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from tests.doubles.rented.boot import Address, Machine
from tests.lab.host import children

Answer = TypeVar("Answer")
MARK = "RENTED_DOUBLE_MACHINE"
"""The variable by which the processes of a machine are found, whatever sessions they have made."""
NODE_ROOT = "BASELOAD_NODE_ROOT"
"""The variable by which a machine says where the agent's folder is, so that several share a host.
"""
POWER_LIMIT_S = 30.0
NVIDIA_SMI = Path(__file__).parents[2] / "lab/doubles/nvidia_smi.py"
SHOWN_GPUS = "/etc/lab-gpus.json"


@dataclass
class _Box:
    folder: Path
    machine: Machine
    key: asyncssh.SSHKey
    host: str
    server: asyncssh.SSHAcceptor | None = None
    port: int = 0
    stands_still: asyncio.Server | None = None
    inside: set[asyncssh.SSHServerConnection] = field(default_factory=set)


class PlainBoot:
    """See `boot.Boot`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-rented-"))
        self.folder.chmod(0o755)  # The accounts of jobs pass through.
        self._boxes: dict[str, _Box] = {}
        self._keys: dict[str, str] = {}
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, machine: Machine) -> Address:
        self._count += 1
        key = machine.given_host_key() or asyncssh.generate_private_key("ssh-ed25519")
        host = machine.host or f"127.82.{self._count >> 8 & 255}.{self._count & 255}"
        box = _Box(self.folder / machine.id, machine, key, host)
        _furnish(box)
        self._boxes[machine.id] = box
        self._keys[machine.id] = " ".join(key.export_public_key().decode().split()[:2])
        port: int = self._do(lambda: _listen(box))
        return Address(box.host, port)

    def public_key(self, machine_id: str) -> str:
        return self._keys[machine_id]

    def end(self, machine_id: str, *, keeps_disk: bool = False) -> None:
        box = self._boxes.pop(machine_id, None)
        if box is not None:
            self._do(lambda: _shut(box))
            kill_marked(str(box.folder))
        if not keeps_disk:
            shutil.rmtree(self.folder / machine_id, ignore_errors=True)

    def stand_still(self, machine_id: str) -> bool:
        """Take connections and do nothing: nothing is read, and no process runs. False: it is
        off, or stands still already."""
        box = self._boxes.get(machine_id)
        if box is None or box.server is None or box.stands_still is not None:
            return False
        signal_marked(str(box.folder), signal.SIGSTOP)
        self._do(lambda: _stop_serving(box))
        return True

    def go_on(self, machine_id: str) -> None:
        """As before; silent when it does not stand still."""
        box = self._boxes.get(machine_id)
        if box is None or box.stands_still is None:
            return
        self._do(lambda: _serve_again(box))
        signal_marked(str(box.folder), signal.SIGCONT)

    def close(self) -> None:
        for machine_id in tuple(self._boxes):
            self.end(machine_id)
        kill_marked(str(self.folder))
        with contextlib.suppress(TimeoutError):
            self._do(_end_the_rest)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(POWER_LIMIT_S)
        self._loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(POWER_LIMIT_S)


async def _listen(box: _Box) -> int:
    box.server = await asyncssh.listen(
        box.host,
        box.port,
        server_factory=lambda: _Gate(box),
        server_host_keys=[box.key],
        process_factory=lambda session: _serve(session, box),
        sftp_factory=True,
        encoding=None,
    )
    box.port = box.server.get_port()
    return box.port


async def _stop_serving(box: _Box) -> None:
    """Who is connected is not heard any more, and who connects hears nothing."""
    assert box.server is not None
    box.server.close()
    for connection in box.inside:
        _transport_of(connection).pause_reading()
    box.stands_still = await asyncio.start_server(_say_nothing, box.host, box.port)


async def _serve_again(box: _Box) -> None:
    assert box.stands_still is not None
    box.stands_still.close()
    box.stands_still = None
    await _listen(box)
    for connection in box.inside:
        _transport_of(connection).resume_reading()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(1024):
            pass
    finally:
        writer.close()


def _transport_of(connection: asyncssh.SSHServerConnection) -> asyncio.Transport:
    found: asyncio.Transport = connection._transport  # type: ignore[assignment]
    return found


async def _shut(box: _Box) -> None:
    if box.stands_still is not None:
        box.stands_still.close()
    if box.server is not None:
        box.server.close()
    for connection in tuple(box.inside):
        connection.abort()


async def _end_the_rest() -> None:
    """Whatever still runs on this loop is cancelled, and has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Gate(asyncssh.SSHServer):
    """Root, with a key that is let in at that moment, and nobody else."""

    def __init__(self, box: _Box) -> None:
        self._box = box
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._box.inside.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._box.inside.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "root" and self._box.machine.lets_in(key)


async def _serve(session: asyncssh.SSHServerProcess[bytes], box: _Box) -> None:
    """Run the session's command to its end; one whose connection is lost is not killed."""
    if session.command is None:
        session.stderr.write(b"only commands and sftp are served here\n")
        session.exit(1)
        return
    closing = asyncio.create_task(session.wait_closed())
    ends = [os.pipe() for _ in range(3)]
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = ends
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", session.command,
            stdin=in_read, stdout=out_write, stderr=err_write,
            cwd=box.folder, env=_environment(box), start_new_session=True,
        )  # fmt: skip
    finally:
        for end in (in_read, out_write, err_write):
            os.close(end)
    files = os.fdopen(in_write, "wb", 0), os.fdopen(out_read, "rb", 0), os.fdopen(err_read, "rb", 0)
    await session.redirect(*files, send_eof=False)
    status = await process.wait()
    await session.stdout.drain()
    await session.stderr.drain()
    if status < 0:
        session.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        session.exit(status)
    await closing


def _environment(box: _Box) -> dict[str, str]:
    """What sshd gives a session: the container's own variables are not among it."""
    return {
        "HOME": str(box.folder),
        "USER": "root",
        "PATH": f"{box.folder}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        MARK: str(box.folder),
        NODE_ROOT: str(box.folder / "node"),
    }


def _furnish(box: _Box) -> None:
    """A folder with an nvidia-smi that shows the machine's GPUs."""
    programs = box.folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (box.folder / "gpus.json").write_text(json.dumps(gpus_shown(box.machine)))
    program = programs / "nvidia-smi"
    program.write_text(NVIDIA_SMI.read_text().replace(SHOWN_GPUS, f"{box.folder}/gpus.json"))
    program.chmod(0o755)


def gpus_shown(machine: Machine) -> dict[str, Any]:
    """The machine's GPUs as the double of nvidia-smi reads them."""
    name, count, memory_mib = machine.gpus
    return {"gpus": [_gpu(machine.id, index, name, memory_mib) for index in range(count)]}


def _gpu(machine_id: str, index: int, name: str, memory_mib: int) -> dict[str, Any]:
    """A GPU as the double of nvidia-smi reads it."""
    return {
        "index": index,
        "name": name,
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{machine_id}/{index}')}",
        "memory.total": memory_mib,
        "memory.used": 0,
        "utilization.gpu": 0,
        "pcie.link.gen.max": 4,
        "pcie.link.width.max": 16,
        "driver_version": "580.82.07",
    }


def kill_marked(part: str) -> None:
    """Every process whose mark has that part, until there is none."""
    while pids := marked(part):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def signal_marked(part: str, number: signal.Signals) -> None:
    """Every process whose mark has that part, and those that they have begun."""
    for pid in with_children(marked(part)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def with_children(pids: list[int]) -> set[int]:
    found, left = set[int](), list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children(pid)
    return found


def marked(part: str) -> list[int]:
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in processes if _carries(entry, part)]


def _carries(process: Path, part: str) -> bool:
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(line.startswith(MARK.encode()) and part.encode() in line for line in environment)
