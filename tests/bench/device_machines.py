"""Real machines for `edge`: a few whole ones, the others with nothing but an OpenSSH server.

All of them are machines of the lab, each with a host key, an address, a disk, processes and cgroups
of its own, and with doubles that say that it is a Jetson. The few have systemd. PID 1 of each other
one keeps its `sshd` up, and a double of systemctl on its PATH starts the keeper of the inference.
Everything else of the agent is as on a real device.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.doubles import put_double
from tests.lab.host import Cgroup, cgroups
from tests.lab.jetsons import Jetson
from tests.lab.machine import BOOT_PARTS, Machine
from tests.lab.machines import Lab

MODEL = "Orin NX"
WATCH = "watch_device"
KEYS, JOIN_FILE = "root/.ssh/authorized_keys", "etc/baseload/join"
SYSTEMD_IS_HERE = "mkdir -p run/systemd/system\n"


class BareJetson:
    """A Jetson without systemd, which has a double of systemctl instead."""

    def install(self, disk: Path) -> None:
        Jetson(MODEL).install(disk)
        put_double(disk, "systemctl")
        with (disk / BOOT_PARTS).open("a") as parts:
            parts.write(SYSTEMD_IS_HERE)


class DeviceMachines:
    """A storage node, then devices, in a lab of their own."""

    def __init__(self, lab: Lab, whole: int, bare: int) -> None:
        self._store = lab.add("store")
        self._devices = [lab.add(f"whole-{n}", "systemd", Jetson(MODEL)) for n in range(whole)]
        self._devices += [lab.add(f"bare-{n}", "sshd", BareJetson()) for n in range(bare)]
        self._groups: list[Cgroup] = [cgroups(lab.id, one.name)[0] for one in self._devices]
        self._watchers = [0] * len(self._devices)
        self._earlier: set[int] = set()

    @property
    def machines(self) -> list[dict[str, Any]]:
        """What each announces, the storage node first."""
        return [_announced(machine) for machine in (self._store, *self._devices)]

    def join(self, api: str, token: dict[str, Any]) -> None:
        """Let a region in, as join.sh does."""
        words = (api, token["region_id"], token["secret"], f"/{KEYS}")
        for machine in (self._store, *self._devices):
            machine.let_in(token["ssh_public_key"])
            file = machine.disk / JOIN_FILE
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{' '.join(words)}\n")

    def watched(self) -> int:
        """How many devices have a watcher that runs, less the earlier ones."""
        for number, (pid, group) in enumerate(zip(self._watchers, self._groups, strict=True)):
            if not _watches(pid) or pid in self._earlier:
                found = (pid for pid in group.pids() - self._earlier if _watches(pid))
                self._watchers[number] = next(found, 0)
        return sum(map(bool, self._watchers))

    def forget_watches(self) -> None:
        """Count from now on no watcher that runs already: it may end later than another begins."""
        self._earlier |= {pid for group in self._groups for pid in group.pids() if _watches(pid)}


@contextmanager
def device_machines(whole: int, bare: int) -> Iterator[DeviceMachines]:
    """So many machines that run, until this is left."""
    with Lab() as lab:
        yield DeviceMachines(lab, whole, bare)


def _announced(machine: Machine) -> dict[str, Any]:
    return {
        "address": machine.address,
        "port": machine.port,
        "host_public_key": machine.host_public_key,
        "minion_id": machine.minion_id,
    }


def _watches(pid: int) -> bool:
    """Whether a process is the agent's watcher, and not a shell that is about to start it."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return len(words) == 5 and words[-1] == WATCH.encode()
    return False
