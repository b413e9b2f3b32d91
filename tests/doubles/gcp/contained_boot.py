"""VMs in namespaces on this host: a real sshd and a root of their own, on the host's network.

For tests that log in to what they rent. They need root; elsewhere `plain_boot.py` has to do.
Lighter than a machine of `tests/lab`: no network, no cgroups and no systemd of its own, so several
VMs share the ports of the host but for 22, which each has at its own loopback address.
"""

from __future__ import annotations

import itertools
import os
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tests.doubles.gcp.boot import SSH_PORT, Address, Vm
from tests.doubles.gcp.contained_disk import configure, install, let_in
from tests.lab.host import children, start_ticks
from tests.lab.waiting import wait_until

HERE = Path(__file__).parent
PREFIX = "baseload-gcp-"
ROOM = Path("/var/tmp")
"""A real disk: no overlay lies on tmpfs."""
BOOTS_WITHIN_S = 60.0


@dataclass
class _Box:
    """One VM's disk and, while it is on, its power supply."""

    folder: Path
    address: Address
    key: asyncssh.SSHKey
    power: subprocess.Popen[bytes] | None = None

    @property
    def init(self) -> int | None:
        """PID 1 of the VM, as the host numbers it; None when it is off."""
        if self.power is None:
            return None
        firmware = next(iter(children(self.power.pid)), None)
        return next(iter(children(firmware)), None) if firmware is not None else None


class ContainedBoot:
    """See `boot.Boot`."""

    def __init__(self) -> None:
        sweep()
        owner = f"{os.getpid()}-{start_ticks(os.getpid())}-"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}", dir=ROOM))
        self._addresses = free_addresses()
        self._boxes: dict[str, _Box] = {}

    def place(self, vm: Vm) -> Address:
        host = next(self._addresses)
        if vm.id in self._boxes:
            self._boxes[vm.id].address = Address(host)
        else:
            key = asyncssh.generate_private_key("ssh-ed25519", comment=vm.name)
            self._boxes[vm.id] = _Box(self.folder / vm.id, Address(host), key)
        return Address(host)

    def power_on(self, vm: Vm) -> Mapping[str, str]:
        box = self._boxes[vm.id]
        if not box.folder.exists():
            install(box.folder, box.key, vm)
        configure(box.folder, box.address, vm)
        with (box.folder / "console").open("ab") as console:
            box.power = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "bash", HERE / "contained_vm.sh", "power"],
                env={
                    "PATH": os.environ["PATH"], "VM_FOLDER": str(box.folder), "VM_NAME": vm.name,
                },
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )  # fmt: skip
        try:
            wait_until(lambda: _greets(box), f"VM {vm.name}: ssh", BOOTS_WITHIN_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.console(vm)}") from error
        kind, key, *_ = box.key.export_public_key().decode().split()
        return {kind: key}

    def refresh(self, vm: Vm) -> None:
        box = self._boxes.get(vm.id)
        init = box.init if box is not None else None
        if init is not None:
            let_in(Path(f"/proc/{init}/root"), vm)

    def power_off(self, vm: Vm) -> None:
        box = self._boxes.get(vm.id)
        if box is None or box.power is None:
            return
        init = box.init
        box.power.kill()
        box.power.wait()
        box.power = None
        if init is not None:
            wait_until(lambda: start_ticks(init) is None, f"VM {vm.name}: all processes gone")

    def console(self, vm: Vm) -> str:
        box = self._boxes.get(vm.id)
        if box is None:
            return ""
        shown = [box.folder / "console", box.folder / "upper/var/log/startup-script.log"]
        return "".join(
            f"{path.stem}: {line}\n"
            for path in shown
            if path.exists()
            for line in path.read_text(errors="replace").splitlines()
        )

    def discard(self, vm: Vm) -> None:
        self.power_off(vm)
        box = self._boxes.pop(vm.id, None)
        if box is not None:
            shutil.rmtree(box.folder, ignore_errors=True)

    def close(self) -> None:
        for box in self._boxes.values():
            if box.power is not None:
                box.power.kill()
                box.power.wait()
        self._boxes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, vm: Vm, *command: str) -> str:
        """Run a command in the VM, at its console, as root; its output.

        Raises: RuntimeError when it is off or the command fails.
        """
        init = self._boxes[vm.id].init
        if init is None:
            raise RuntimeError(f"VM {vm.name}: is off")
        entering = ["nsenter", "--target", str(init), "--mount", "--uts", "--ipc", "--pid"]
        done = subprocess.run(
            [*entering, "--", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            asked = shlex.join(command)
            raise RuntimeError(f"VM {vm.name}: {asked}: exit {done.returncode}: {done.stderr}")
        return done.stdout


def sweep() -> None:
    """Remove what doubles have left whose process was killed."""
    for folder in ROOM.glob(f"{PREFIX}*-*-*"):
        pid, ticks, *_ = folder.name.removeprefix(PREFIX).split("-")
        if pid.isdigit() and str(start_ticks(int(pid))) != ticks:
            shutil.rmtree(folder, ignore_errors=True)


def free_addresses() -> Iterator[str]:
    """Loopback addresses at which nothing answers to SSH; several doubles at once begin each
    elsewhere."""
    chance = random.SystemRandom()
    first, second = chance.randrange(64, 255), chance.randrange(256)
    starts = (f"127.{first}.{(second + more) % 256}" for more in itertools.count())
    every = (f"{start}.{number}" for start in starts for number in range(1, 255))
    return (host for host in every if _is_free(host))


def _is_free(host: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, SSH_PORT))
        except OSError:
            return False
        return True


def _greets(box: _Box) -> bool:
    assert box.power is not None
    if box.power.poll() is not None:
        raise RuntimeError(f"VM at {box.address.host}: ended at once, with {box.power.returncode}")
    try:
        where = (box.address.host, box.address.port)
        with socket.create_connection(where, timeout=0.3) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
