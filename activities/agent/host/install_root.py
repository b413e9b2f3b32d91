"""The root in which apt installs a system layer: what is written there goes into the layer alone.

Set-up scripts of packages are root in there, and reach nothing of this machine: they have their own
processes, mounts, shared memory and host name, no network, no device but those of every program,
a read-only /proc and /sys, no sockets of the machine's services, and few capabilities. Of this
machine's files they see copies, and none of the agent's, of homes, or of what only this machine's
owner may know of apt.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator

from ..folders import Folders
from . import device_files, file_tree, job_accounts, join_file, prctl, run_root
from .mount_namespace import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    mount,
)
from .run_root import MS_PRIVATE, MS_REMOUNT, ROOT, UPPER, lay_over, mounted_below, unshare

CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 1 << 26, 1 << 27, 1 << 29, 1 << 30
PARTS = ("/etc", "/opt", "/usr", "/usr/local", "/var", "/var/lib", "/var/cache", "/var/log")
"""What apt installs into and may be a file system of its own, beside that of the root."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
HOMES = ("/root", "/home")
CREDENTIALS = ("/etc/apt/auth.conf", "/etc/apt/auth.conf.d")
NAMES = ("/etc/resolv.conf", "/etc/hosts")
POLICY = "/usr/sbin/policy-rc.d"
STARTS_NOTHING = "#!/bin/sh\nexit 101\n"
CAPABILITIES = frozenset((0, 1, 3, 4, 5, 6, 7, 18, 29, 31))
"""To own, read and change files, to end processes, to become another account, to change the root,
to write to the audit log, and to give files capabilities."""
MEASURED_S = 2.0
STEP_ENTRIES = 20_000
TOO_LARGE = 75
"""The exit status when the layer has become larger than it may."""


def parts() -> list[str]:
    """The paths of file systems of this machine that a layer is laid over beside the root."""
    there = set()
    for top in PARTS:
        if any(path == top for path in mounted_below(os.path.dirname(top))):
            there.add(top)
    return sorted(there)


def part_folder(path: str) -> str:
    """The folder of a layer that is being built, with what is written into one of `parts`."""
    return "part" + path.replace("/", "-")


def run_in(
    folders: Folders, path: str, most_bytes: int, owned: bool, install: Callable[[], int]
) -> int:
    """Have `install` executed in a root whose layer is built at `path`; return its exit status.

    most_bytes: when the layer becomes larger, everything is killed.
    owned: whether apt may use the credentials of this machine's owner.
    install: gets no arguments; it calls `leave_network` before it starts what is not trusted.
    """
    os.umask(0o022)
    unshare(CLONE_NEWPID)  # The next process is the first one of its own.
    alive, lives = os.pipe()
    ended, ends = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(lives)
            os.close(ended)
            prctl.die_with_parent()
            if not select.select([alive], [], [], 0)[0]:  # Else the parent has ended before.
                _enter(folders, path, owned)
                status = install()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            os.write(1, ("%s\n" % error).encode())
        finally:
            os._exit(status)
    os.close(ends)
    os.close(alive)
    while not select.select([ended], [], [], MEASURED_S)[0]:
        if used_bytes(path) > most_bytes:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return TOO_LARGE
    _, status = os.waitpid(pid, 0)
    if used_bytes(path) > most_bytes:
        return TOO_LARGE
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def used_bytes(path: str) -> int:
    """What a layer, or a part of it, has on the disk."""
    return [one for one in file_tree.measuring(path, STEP_ENTRIES) if one is not None][-1]


def leave_network() -> None:
    """Nothing that this process starts from now on has a network."""
    unshare(CLONE_NEWNET)


def _enter(folders: Folders, path: str, owned: bool) -> None:
    top = os.path.join(path, ROOT)
    unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.chdir(path)
    for name in (UPPER, "work", ROOT, "tmp"):
        os.mkdir(name)
    os.chmod("tmp", 0o1777)
    lay_over("/", ROOT, UPPER, "work")
    for part in parts():
        folder = part_folder(part)
        os.makedirs(folder + "/" + UPPER)
        os.mkdir(folder + "/work")
        lay_over(part, ROOT + part, folder + "/" + UPPER, folder + "/work")
    _hide(folders, top, owned)
    for name in ("/tmp", "/var/tmp"):
        if os.path.isdir(top + name):
            mount("tmp", top + name, None, MS_BIND)
    mount("tmpfs", top + "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
    os.mkdir(top + "/run/lock")
    os.chmod(top + "/run/lock", 0o1777)
    _name_servers(top)
    _devices(top + device_files.DEVICES)
    mount("proc", top + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    mount("sysfs", top + "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    with _anew(top + POLICY) as policy:
        os.write(policy, STARTS_NOTHING.encode())
        os.fchmod(policy, 0o755)
    run_root.pivot(top)
    prctl.keep_capabilities(CAPABILITIES)
    prctl.forbid_new_privileges()


def _hide(folders: Folders, top: str, owned: bool) -> None:
    hidden = [folders.root, job_accounts.ACCOUNTS, os.path.dirname(join_file.OF_ROOT), *HOMES]
    for path in hidden + ([] if owned else list(CREDENTIALS)):
        target = top + os.path.realpath(path)
        if os.path.isdir(target):
            mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
        elif os.path.exists(target):
            mount(os.devnull, target, None, MS_BIND)
            mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def _name_servers(top: str) -> None:
    """Show how names are found, which files of the machine's own /run often say."""
    for path in NAMES:
        source = os.path.realpath(path)
        if not os.path.isfile(source):
            continue
        target = top + source
        if source.startswith("/run/"):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
        if os.path.exists(target):
            mount(source, target, None, MS_BIND)
            mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def _devices(target: str) -> None:
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k")
    for name in DEVICES:
        path = os.path.join(target, name)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
        mount(os.path.join(device_files.DEVICES, name), path, None, MS_BIND)
        # They can be written to all the same, but neither their mode nor their owner be changed.
        mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC)
    for name, aim in LINKS.items():
        os.symlink("/proc/self/" + aim, os.path.join(target, name))
    os.mkdir(target + "/shm")
    mount("tmpfs", target + "/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=64m")


@contextlib.contextmanager
def _anew(path: str) -> Iterator[int]:
    """A new file in the place of whatever is at a path."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
