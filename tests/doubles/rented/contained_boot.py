"""Machines in namespaces on this host: a real sshd and a root of their own, on the host's network.

For stories in which whole jobs run on what is rented: whatever a job or the agent does on such a
machine stays in it. They need root; elsewhere `plain_boot.py` has to do. The start script does not
run here either: of what it does, the host key and the public keys are put onto the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tests.doubles.gcp.contained_boot import HERE as VM_PROGRAMS
from tests.doubles.gcp.contained_boot import ROOM, free_addresses
from tests.doubles.gcp.contained_disk import OWN_FOLDERS, write_program
from tests.doubles.rented.boot import Address, Machine
from tests.doubles.rented.plain_boot import NVIDIA_SMI, PlainBoot, gpus_shown
from tests.lab.host import children, start_ticks
from tests.lab.waiting import wait_until

PREFIX = "baseload-rented-"
SSH_PORT = 22
BOOTS_WITHIN_S = 60.0
POWER_PROGRAM = VM_PROGRAMS / "contained_vm.sh"
SSHD_CONFIG = """Port {port}
ListenAddress {host}
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100:30:200
Subsystem sftp internal-sftp
"""


@dataclass
class _Box:
    """One machine's disk and, while it is on, its power supply."""

    folder: Path
    host: str
    public_key: str
    power: subprocess.Popen[bytes]

    @property
    def init(self) -> int | None:
        """PID 1 of the machine, as this host numbers it; None: there is none."""
        firmware = next(iter(children(self.power.pid)), None)
        return next(iter(children(firmware)), None) if firmware is not None else None


class ContainedBoot:
    """See `boot.Boot`. An SSH server whose host key nobody knows is a plain one: none gets in."""

    def __init__(self) -> None:
        sweep()
        owner = f"{os.getpid()}-{start_ticks(os.getpid())}-"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}", dir=ROOM))
        self._addresses = free_addresses()
        self._boxes: dict[str, _Box] = {}
        self._keys: dict[str, str] = {}
        self._closed = PlainBoot()
        # A machine ends with the thread that has switched it on.
        self._power = ThreadPoolExecutor(1, thread_name_prefix="power")

    def start(self, machine: Machine) -> Address:
        key = machine.given_host_key()
        if key is None:
            return self._closed.start(machine)
        host = machine.host or next(self._addresses)
        folder = self.folder / machine.id
        if not folder.exists():
            _install(folder, key, machine)
        _configure(folder / "upper", host, machine)
        public_key = " ".join(key.export_public_key().decode().split()[:2])
        box = _Box(
            folder, host, public_key, self._power.submit(_switch_on, folder, machine).result()
        )
        self._boxes[machine.id], self._keys[machine.id] = box, public_key
        wait_until(lambda: _greets(box), f"machine {machine.id}: ssh", BOOTS_WITHIN_S)
        return Address(host, SSH_PORT)

    def public_key(self, machine_id: str) -> str:
        found = self._keys.get(machine_id)
        return self._closed.public_key(machine_id) if found is None else found

    def end(self, machine_id: str, *, keeps_disk: bool = False) -> None:
        self._closed.end(machine_id, keeps_disk=keeps_disk)
        box = self._boxes.pop(machine_id, None)
        if box is not None:
            init = box.init
            _switch_off(box)
            if init is not None:
                what = f"machine {machine_id}: all processes gone"
                wait_until(lambda: start_ticks(init) is None, what)
        if not keeps_disk:
            shutil.rmtree(self.folder / machine_id, ignore_errors=True)

    def close(self) -> None:
        for machine_id in tuple(self._boxes):
            self.end(machine_id)
        self._closed.close()
        self._power.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


def sweep() -> None:
    """Remove what doubles have left whose process was killed."""
    for folder in ROOM.glob(f"{PREFIX}*-*-*"):
        pid, ticks, *_ = folder.name.removeprefix(PREFIX).split("-")
        if pid.isdigit() and str(start_ticks(int(pid))) != ticks:
            shutil.rmtree(folder, ignore_errors=True)


def _switch_on(folder: Path, machine: Machine) -> subprocess.Popen[bytes]:
    name = f"rented-{machine.id}"[:63]
    with (folder / "console").open("ab") as console:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "bash", POWER_PROGRAM, "power"],
            env={"PATH": os.environ["PATH"], "VM_FOLDER": str(folder), "VM_NAME": name},
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )


def _switch_off(box: _Box) -> None:
    box.power.kill()
    box.power.wait()


def _install(folder: Path, host_key: asyncssh.SSHKey, machine: Machine) -> None:
    """Write the machine's own files onto its empty disk."""
    upper = folder / "upper"
    for each in ("work", "root", "upper/usr/local/sbin", "upper/usr/local/bin"):
        (folder / each).mkdir(parents=True)
    for name, mode in OWN_FOLDERS.items():
        (upper / name).mkdir(parents=True, exist_ok=True)
        (upper / name).chmod(mode)
        os.setxattr(upper / name, "trusted.overlay.opaque", b"y")
    key = upper / "etc/ssh/ssh_host_ed25519_key"
    key.write_bytes(host_key.export_private_key())
    key.chmod(0o600)
    write_program(upper / "usr/local/sbin/vm-init", POWER_PROGRAM.read_text())
    (upper / "etc/lab-gpus.json").write_text(json.dumps(gpus_shown(machine)))
    write_program(upper / "usr/local/bin/nvidia-smi", NVIDIA_SMI.read_text())
    (folder / "users").write_text("")


def _configure(upper: Path, host: str, machine: Machine) -> None:
    """What the start script does: the public keys that are let in, and sshd at the address."""
    (upper / "etc/hosts").write_text(f"127.0.0.1 localhost\n{host} rented-{machine.id}\n")
    (upper / "etc/ssh/sshd_config").write_text(SSHD_CONFIG.format(host=host, port=SSH_PORT))
    keys = upper / "root/.ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_text("".join(f"{key}\n" for key in machine.let_in))
    keys.chmod(0o600)


def _greets(box: _Box) -> bool:
    if box.power.poll() is not None:
        said = (box.folder / "console").read_text(errors="replace")[-500:]
        raise RuntimeError(f"machine at {box.host}: ended at once, {box.power.returncode}: {said}")
    try:
        with socket.create_connection((box.host, SSH_PORT), timeout=0.3) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
