"""The way into the isolation of a run that runs: its cgroup, mounts, account, folder, variables.

What starts there is as the run's own command: it cannot do more, it counts for the run's limits,
and it ends with the run at the latest, as everything of the run's cgroup and account does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pwd
import time
from collections.abc import Callable
from typing import List, Tuple

from ..errors import RefusedError
from ..federated import links
from ..folders import DEVICES, Run
from . import cgroups, mount_namespace, processes, spawn

GROUPS = "cgroup.procs"
BEGUN_WITHIN_S = 5.0
NS_GET_USERNS = 0xB701
USER_NAMESPACE = "/proc/%s/ns/user"
NETWORK = "/proc/%s/ns/net"
ENV_OF_PODMAN = ("PATH", "HOME", "XDG_RUNTIME_DIR", "LANG", "CONTAINERS_STORAGE_CONF", "TMPDIR")


Identity = Tuple[List[int], int, int]


class Isolation:
    """The isolation of one run, as it is while the run runs.

    Raises: RefusedError `not-running`; `no-account`, where the run has no account of its own
    although the agent is root.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.spec = run.read("spec.json") or {}
        self.process = run.read("process.json") or {}
        if not self.is_running():
            raise RefusedError("not-running", "run %s: does not run on this node" % run.run_id)
        if os.geteuid() == 0 and not self.spec.get("user"):
            raise RefusedError(
                "no-account", "run %s: has no account of its own on this node" % run.run_id
            )
        self.first = self._first()

    def is_running(self) -> bool:
        """Whether the run's supervisor lives and has seen no end of the run."""
        ticks = self.process.get("supervisor_start_ticks")
        is_supervised = processes.is_alive(self.process.get("supervisor_pid"), ticks)
        return is_supervised and not self.run.has("exit.json")

    @property
    def is_contained(self) -> bool:
        """Whether the run is in a container."""
        return self.spec.get("runtime") == "podman"

    def enter_groups(self) -> None:
        """Put this process into every cgroup of the run; needs root.

        Raises: OSError, when a cgroup of the run does not take it: it would have no limits.
        """
        if os.geteuid() != 0:
            return
        for folder in _groups_of(self.first.pid):
            with open(os.path.join(folder, GROUPS), "w") as file:
                file.write("0")

    def enter_mounts(self) -> None:
        """See all mounts of the run from now on, such as its /dev; needs root.

        Whatever must not be read of what the run says has been read before, such as accounts.

        Raises: OSError; PermissionError, where the run itself has made these mounts: there it is
        root and has put what it likes at every path.
        """
        if os.geteuid() != 0 or self.run.read(DEVICES) is None:
            return
        descriptor = os.open("/proc/%d/ns/mnt" % self.first.pid, os.O_RDONLY)
        is_own = os.fstat(descriptor).st_ino != os.stat("/proc/self/ns/mnt").st_ino
        if not processes.is_alive(self.first.pid, self.first.start_ticks):
            raise ProcessLookupError("the run's process has just ended")
        if is_own and not is_of_this_machine(descriptor):
            raise PermissionError(errno.EPERM, "the run's process has mounts that it has made")
        libc = ctypes.CDLL(None, use_errno=True)
        # Else this machine has none for its runs, as `mount_namespace.prepare` has said.
        if is_own and libc.setns(descriptor, mount_namespace.CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)

    def enter_network(self) -> None:
        """Be in the network of the run from now on, where it has one of its own; needs root.

        Raises: OSError, when no process of the run is in it.
        """
        if not self.spec.get("federated"):
            return
        own = os.stat(NETWORK % "self").st_ino
        for one in self._processes():
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(NETWORK % one.pid, os.O_RDONLY)
                try:
                    if os.fstat(descriptor).st_ino != own:
                        links.enter(descriptor, links.CLONE_NEWNET)
                        return
                finally:
                    os.close(descriptor)
        raise ProcessLookupError("no process of the run is in its network")

    def identity(self, variables: dict[str, str]) -> Identity | None:
        """The run's account, as `become` takes it; to be asked before the run's mounts are seen."""
        return spawn.identity_of(self.spec.get("user"), self.spec, variables)

    def become(self, folder: str, identity: Identity | None) -> None:
        """Become a process of the run's account in this folder; there is no way back."""
        spawn.become(folder, identity, cgroups.most_tasks(self.spec))

    def variables(self) -> dict[str, str]:
        """What the run's command has found in its environment."""
        return spawn.environment(self.run, self.spec)

    def contained(self, arguments: list[str], variables: dict[str, str], tty: bool) -> list[str]:
        """The podman command that runs these arguments in the run's container."""
        command = ["podman", "exec", "--interactive"]
        if tty:
            command.append("--tty")
        if self.spec.get("user"):
            entry = pwd.getpwnam(self.spec["user"])
            command += ["--user", "%d:%d" % (entry.pw_uid, entry.pw_gid)]
        for name, value in variables.items():
            command += ["--env", "%s=%s" % (name, value)]
        return [*command, "--workdir", "/baseload/work", self.run.run_id, *arguments]

    def fork(self, act: Callable[[], None]) -> int:
        """Do this in a child, which must end by itself; its process id."""
        pid = os.fork()
        if pid:
            return pid
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - the forked child must never return
            os.write(2, ("baseload: %s\n" % error).encode(errors="replace"))
        finally:
            os._exit(126)

    def _first(self) -> processes.Process:
        """The run's first process, or another one if that has ended; of the run's account, which it
        becomes after all else of its isolation."""
        until = time.monotonic() + BEGUN_WITHIN_S
        while self.is_running():
            for one in self._processes():
                if not one.has_ended and self._is_inside(one.pid):
                    return one
            if time.monotonic() > until:
                break
            time.sleep(0.02)
        raise RefusedError(
            "not-running",
            "run %s: has no process now in the mounts that it was given" % self.run.run_id,
        )

    def _processes(self) -> list[processes.Process]:
        """The run's first process, and all others of the run."""
        first = []
        if processes.is_alive(self.process.get("pid"), self.process.get("start_ticks")):
            found = processes.find(self.process["pid"])
            first = [found] if found is not None else []
        supervisor = {int(self.process["supervisor_pid"])}
        return first + processes.descendants(supervisor, processes.everything())

    def _is_inside(self, pid: int) -> bool:
        if self.is_contained or os.geteuid() != 0:
            return True
        uid = str(pwd.getpwnam(self.spec["user"]).pw_uid)
        try:
            with open("/proc/%d/status" % pid) as file:
                uids = next(line.split()[1:] for line in file if line.startswith("Uid:"))
            own, theirs = (os.stat(USER_NAMESPACE % one).st_ino for one in ("self", pid))
        except (OSError, StopIteration):
            return False
        return set(uids) == {uid} and theirs == own


def is_of_this_machine(mounts: int) -> bool:
    """Whether root of this machine has made a namespace of mounts, and no root of a run's own."""
    owner = fcntl.ioctl(mounts, NS_GET_USERNS)
    try:
        return os.fstat(owner).st_ino == os.stat(USER_NAMESPACE % "self").st_ino
    finally:
        os.close(owner)


def own_variables() -> dict[str, str]:
    """Of this process's environment, what podman needs to find the machine's containers."""
    return {name: os.environ[name] for name in ENV_OF_PODMAN if name in os.environ}


def _groups_of(pid: int) -> list[str]:
    """The folders of all cgroups of a process that this machine shows."""
    tops = {}
    with open(cgroups.MOUNTS) as file:
        for line in file:
            _, path, kind, options, *_ = line.split()
            if kind == "cgroup2":
                tops[""] = path
            elif kind == "cgroup":
                for option in options.split(","):
                    tops.setdefault(option, path)
    found = set()
    with open("/proc/%d/cgroup" % pid) as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                if controller in tops:
                    found.add(tops[controller] + path.rstrip("/"))
    return sorted(folder for folder in found if os.path.exists(os.path.join(folder, GROUPS)))
