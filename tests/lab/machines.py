"""A lab of whole machines on one host: each with its own sshd, host key, address, disk and PID 1.

    with Lab() as lab:
        alpha = lab.add("alpha")                      # plain: an init of ours keeps sshd up
        beta = lab.add("beta", kind="systemd")        # systemd is PID 1
        alpha.minion_id, alpha.address                # what a person would read on its console
        alpha.power_cut(); alpha.boot()               # the disk survives

The tests and the stack stay on the host and reach 10.77.N.0/24 over one private cable; the machines
have no way out. Boot from the main thread: a machine ends with the thread that booted it, so that a
killed test session leaves none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncssh

from tests.lab.host import cgroups, execute, start_ticks
from tests.lab.machine import Kind, Machine, Parts
from tests.lab.network import HOST_LINK, Network

PREFIX = "baseload-lab-"
SWEEP_LOCK = Path("/var/tmp/.baseload-lab-sweep.lock")


class Lab:
    """A network and its machines; all is gone when it closes, or when its process is killed."""

    def __init__(self) -> None:
        sweep()
        self.folder = Path(
            tempfile.mkdtemp(prefix=PREFIX, dir="/var/tmp")
        )  # a real disk: no overlay lies on tmpfs
        self.id = self.folder.name
        self._write_owner(None)
        key = asyncssh.generate_private_key("ssh-ed25519", comment="lab")
        self.client_key = self.folder / "client_ed25519"
        self.client_key.write_bytes(key.export_private_key())
        self.client_key.chmod(0o600)
        self.public_key = key.export_public_key().decode()
        self.network = Network()
        self._write_owner(self.network.link)
        self.machines: dict[str, Machine] = {}
        self._count = 0

    def _write_owner(self, link: str | None) -> None:
        owner = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "link": link}
        (self.folder / "owner.json").write_text(json.dumps(owner))

    def add(self, name: str, kind: Kind = "sshd", parts: Parts | None = None) -> Machine:
        """Build a machine, with other parts than the host's where given, and boot it.

        Names are new in the lab, at most 15 characters.
        """
        if name in self.machines or name in ("host", "br0", "lo") or len(name) > 15:
            raise ValueError(f"machine {name!r}: a name is new and has at most 15 characters")
        machine = Machine(self, name, kind, self.network.address(self._count), parts)
        self._count += 1
        self.machines[name] = machine
        machine.boot()
        return machine

    def remove(self, name: str) -> None:
        self.machines.pop(name).discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self.machines):
            self.remove(name)
        self.network.close()
        remove_cgroups(self.id)
        shutil.rmtree(self.folder)


def remove_cgroups(lab: str) -> None:
    """End what is left in the cgroups of a lab, then remove them."""
    for group in cgroups(lab, "."):
        for pid in group.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        group.remove()


def sweep() -> None:
    """Remove what labs whose process was killed have left: folders, cgroups, the cable.

    One at a time: test sessions that begin together would trip over each other's removals.
    """
    with SWEEP_LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep()


def _sweep() -> None:
    for folder in Path("/var/tmp").glob(f"{PREFIX}*"):
        try:
            owner = json.loads((folder / "owner.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            continue  # being made at this moment
        if owner["start_ticks"] == start_ticks(owner["pid"]):
            continue
        remove_cgroups(folder.name)
        link = owner["link"]
        if link is not None and link.startswith(HOST_LINK):
            with contextlib.suppress(RuntimeError):
                execute("ip", "link", "delete", link)
        shutil.rmtree(folder, ignore_errors=True)
