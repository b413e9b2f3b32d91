"""VMs as nothing but an SSH server: what they run are processes of ours in a folder of their own.

For hosts where the tests are not root: everything runs as the user who runs the double, and the
port is not 22 but one told in the metadata (`double-ssh-port`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from tests.doubles.gcp.boot import Address, Vm

Answer = TypeVar("Answer")
MARK = "GCP_DOUBLE_VM"
"""The variable by which the processes of a VM are found, whatever sessions they have made."""
POWER_LIMIT_S = 30.0


@dataclass
class _Box:
    folder: Path
    address: Address
    key: asyncssh.SSHKey
    server: asyncssh.SSHAcceptor | None = None
    startup: subprocess.Popen[bytes] | None = None
    inside: set[asyncssh.SSHServerConnection] = field(default_factory=set)


class PlainBoot:
    """See `boot.Boot`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-gcp-plain-"))
        self._boxes: dict[str, _Box] = {}
        self._hosts = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def place(self, vm: Vm) -> Address:
        number = next(self._hosts)
        host = f"127.79.{number >> 8 & 255}.{number & 255}"
        with socket.socket() as probe:
            probe.bind((host, 0))
            address = Address(host, probe.getsockname()[1])
        box = self._boxes.get(vm.id)
        key = box.key if box else asyncssh.generate_private_key("ssh-ed25519", comment=vm.name)
        self._boxes[vm.id] = _Box(self.folder / vm.id, address, key)
        return address

    def power_on(self, vm: Vm) -> Mapping[str, str]:
        box = self._boxes[vm.id]
        box.folder.mkdir(parents=True, exist_ok=True)
        self._do(lambda: self._listen(box, vm))
        script = vm.metadata().get("startup-script")
        if script is not None:
            (box.folder / "startup-script").write_text(script)
            with (box.folder / "startup-script.log").open("wb") as log:
                box.startup = subprocess.Popen(
                    ["/bin/sh", "startup-script"],
                    cwd=box.folder, env=_environment(box), start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
        kind, public, *_ = box.key.export_public_key().decode().split()
        return {kind: public}

    def refresh(self, vm: Vm) -> None:
        """The metadata is looked at with each login."""

    def power_off(self, vm: Vm) -> None:
        box = self._boxes.get(vm.id)
        if box is not None:
            self._do(lambda: self._shut(box))
            _kill_all(f"{box.folder}")
            if box.startup is not None:
                box.startup.wait()

    def console(self, vm: Vm) -> str:
        box = self._boxes.get(vm.id)
        log = box.folder / "startup-script.log" if box else None
        return log.read_text(errors="replace") if log is not None and log.exists() else ""

    def discard(self, vm: Vm) -> None:
        self.power_off(vm)
        if self._boxes.pop(vm.id, None) is not None:
            shutil.rmtree(self.folder / vm.id, ignore_errors=True)

    def close(self) -> None:
        for box in self._boxes.values():
            self._do(partial(self._shut, box))
            if box.startup is not None:
                box.startup.kill()
                box.startup.wait()
        _kill_all(str(self.folder))
        with contextlib.suppress(TimeoutError):
            self._do(_end_the_rest)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(POWER_LIMIT_S)
        self._loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(POWER_LIMIT_S)

    async def _listen(self, box: _Box, vm: Vm) -> None:
        box.server = await asyncssh.listen(
            box.address.host,
            box.address.port,
            server_factory=lambda: _Gate(box, vm),
            server_host_keys=[box.key],
            process_factory=lambda session: _serve(session, box, vm),
            sftp_factory=True,
            encoding=None,
        )

    async def _shut(self, box: _Box) -> None:
        if box.server is not None:
            box.server.close()
            box.server = None
        for connection in tuple(box.inside):
            connection.abort()


async def _end_the_rest() -> None:
    """Whatever still runs on this loop is cancelled, and has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Gate(asyncssh.SSHServer):
    """Whoever the metadata's `ssh-keys` name at that moment, and nobody else."""

    def __init__(self, box: _Box, vm: Vm) -> None:
        self._box = box
        self._vm = vm
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
        shown = key.export_public_key().decode().split()[:2]
        for line in self._vm.metadata().get("ssh-keys", "").splitlines():
            user, _, allowed = line.partition(":")
            if user == username and allowed.split()[:2] == shown:
                return True
        return False


async def _serve(session: asyncssh.SSHServerProcess[bytes], box: _Box, vm: Vm) -> None:
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
    return {
        "HOME": str(box.folder),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "SSH_CONNECTION": f"{box.address.host} 0 {box.address.host} {box.address.port}",
        MARK: str(box.folder),
    }


def _kill_all(part: str) -> None:
    """Every process whose mark has that part, until there is none."""
    while pids := _marked(part):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(part: str) -> list[int]:
    processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in processes if _carries(entry, part)]


def _carries(process: Path, part: str) -> bool:
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(line.startswith(MARK.encode()) and part.encode() in line for line in environment)
