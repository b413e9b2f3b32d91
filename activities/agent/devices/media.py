"""The video, media and sound devices of a device, those that are plugged in later, too.

A run has a /dev of its own, so what appears in that of the machine is made there as well, and what
has gone is removed: by a child that enters the mount namespace of the run, or of its container.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import stat
import sys

from ..host import containers, device_files, jetson, prctl, processes
from ..host.mount_namespace import CLONE_NEWNS
from .state import Revision

INTERVAL_S = 1.0
MOST_NODES = 256


def there() -> dict[str, int]:
    """By name below /dev, the device number of each that is plugged in now."""
    found = {}
    for name in jetson.media_files()[:MOST_NODES]:
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(device_files.DEVICES, name))
            if stat.S_ISCHR(status.st_mode):
                found[name] = status.st_rdev
    return found


class Media:
    """What a started revision has been shown so far."""

    def __init__(self, revision: Revision) -> None:
        self._revision = revision
        self._spec = revision.read("spec.json") or {}
        self._shown: dict[str, int] | None = None
        self._due = 0.0

    def keep(self) -> None:
        """Show what is new, and remove what has gone; a look at /dev each second."""
        now = processes.monotonic_s()
        if now < self._due or not self._spec.get("has_media"):
            return
        self._due = now + INTERVAL_S
        wanted = there()
        if wanted == self._shown:
            return
        pid = self._first_process()
        if pid is None or not _is_apart(pid):
            return  # Not there yet, or it has the /dev of this machine.
        gone = sorted(set(self._shown or {}) - set(wanted))
        if _in_namespace(pid, wanted, gone, self._uid()):
            self._shown = wanted

    def _first_process(self) -> int | None:
        if self._spec.get("runtime") == "podman":
            return _of_container(self._revision.run_id)
        pid = (self._revision.read("process.json") or {}).get("pid")
        return int(pid) if pid else None

    def _uid(self) -> int:
        user = self._spec.get("user")
        return pwd.getpwnam(user).pw_uid if user else 0


def _of_container(run_id: str) -> int | None:
    try:
        done = containers.podman(["inspect", "--format", "{{.State.Pid}}", run_id], 20.0)
    except Exception:  # noqa: BLE001 - podman is asked again a second later
        return None
    text = done.stdout.decode(errors="replace").strip()
    return int(text) if done.returncode == 0 and text.isdigit() and text != "0" else None


def _is_apart(pid: int) -> bool:
    """Whether a process has a mount namespace of its own."""
    try:
        return os.readlink("/proc/%d/ns/mnt" % pid) != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return False


def _in_namespace(pid: int, wanted: dict[str, int], gone: list[str], uid: int) -> bool:
    """Make and remove the files in the /dev of a process; whether all was done."""
    try:
        namespace = os.open("/proc/%d/ns/mnt" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    child = os.fork()
    if child:
        os.close(namespace)
        return os.waitpid(child, 0)[1] == 0
    status = 1
    try:
        prctl.die_with_parent()
        _enter(namespace)
        _bring(wanted, gone, uid)
        status = 0
    except OSError as error:
        sys.stderr.write("media devices: %s\n" % error)
        sys.stderr.flush()
    finally:
        os._exit(status)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _bring(wanted: dict[str, int], gone: list[str], uid: int) -> None:
    os.umask(0)
    for name in gone:
        with contextlib.suppress(OSError):  # One that was mounted there stays.
            os.unlink(os.path.join(device_files.DEVICES, name))
    for name, number in wanted.items():
        path = os.path.join(device_files.DEVICES, name)
        if os.path.lexists(path):
            continue
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, number)
        os.chown(path, uid, -1)
