"""What the lab needs of the host: processes by start time, cgroups, why it cannot run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.waiting import wait_until

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROGRAMS = {
    "curl": "curl",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "/usr/sbin/sshd": "openssh-server",
    "/usr/bin/python3": "python3-venv",
    "/lib/systemd/systemd": "systemd",
}
CAP_SYS_ADMIN, CAP_NET_ADMIN = 21, 12


def obstacle() -> str | None:
    """Why no lab can run on this host, with the command that enables it; None when one can."""
    status = Path("/proc/self/status").read_text()
    capabilities = next(
        int(line.split()[1], 16) for line in status.splitlines() if "CapEff" in line
    )
    if os.geteuid() != 0 or not all(
        capabilities >> cap & 1 for cap in (CAP_SYS_ADMIN, CAP_NET_ADMIN)
    ):
        return "the lab needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN: run `sudo make test`"
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        return (
            f"the lab needs programs that are not here: run `apt-get install {' '.join(missing)}`"
        )
    return None


def execute(*command: str | Path) -> str:
    """Run a command of the host; its output. Raises: RuntimeError with what it said."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        asked = " ".join(str(part) for part in command)
        raise RuntimeError(f"{asked}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    """Pids of the children of a process, oldest first."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


@dataclass(frozen=True)
class Cgroup:
    """A folder of one cgroup hierarchy, made below the one that this process is in."""

    folder: Path
    kind: str
    options: str
    name: str

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if "cpuset" not in self.options.split(","):
            return
        for folder in (
            self.folder.parent,
            self.folder,
        ):  # a new cpuset holds nothing, and admits no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((folder.parent / file).read_text())

    def pids(self) -> set[int]:
        """Every process in it or below."""
        found: set[int] = set()
        for folder, _, files in os.walk(self.folder):  # folders come and go meanwhile
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    procs = (Path(folder) / "cgroup.procs").read_text()
                    found |= {int(pid) for pid in procs.split()}
        return found

    def remove(self) -> None:
        """Remove it and what is below once it is empty; silent when it is not there."""
        wait_until(lambda: not self.pids(), f"cgroup {self.folder}: empty")
        for folder, _, _ in os.walk(self.folder, topdown=False):
            Path(folder).rmdir()


def cgroups(lab: str, machine: str) -> list[Cgroup]:
    """The machine's place in every hierarchy that the host has mounted, version 1 or 2."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted_at, kind, options, *_ = line.split()
        if kind not in ("cgroup", "cgroup2") or not Path(mounted_at).is_relative_to(CGROUP_ROOT):
            continue
        known = [
            part for part in options.split(",") if part not in ("rw", "ro", "relatime", "nosuid")
        ]
        controllers = ",".join(part for part in known if not part.startswith("no"))
        if kind == "cgroup2":
            controllers = ""
        chosen = f"none,{controllers}" if controllers.startswith("name=") else controllers or "rw"
        folder = Path(mounted_at) / own.get(controllers, "") / lab / machine
        found.append(Cgroup(folder, kind, chosen, str(Path(mounted_at).relative_to(CGROUP_ROOT))))
    return found


def lines_for_boot(groups: Sequence[Cgroup]) -> str:
    """The table that boot.sh reads."""
    return "".join(
        f"{group.folder} {group.kind} {group.options} {group.name}\n" for group in groups
    )
