"""The video, media and sound devices of a device, those that are plugged in later, too.

A run has a /dev of its own, so what appears in that of the machine is made there as well, and what
has gone is removed: by a child that enters the mount namespace of the run, or of its container.

A command may make a user namespace and, with the rights that it has there, a mount namespace, in
which every path leads where it wants. Such a one is never entered: root would make files, and give
files away, for the command. The owner of a mount namespace never changes, so nothing can happen
between the check and the entry.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pwd
import signal
import stat
import sys

from ..host import containers, device_files, jetson, prctl, processes
from ..host.mount_namespace import CLONE_NEWNS
from .state import Revision

INTERVAL_S = 1.0
LONGEST_INTERVAL_S = 30.0
"""A look that comes to nothing doubles the interval to the next one, up to this."""
LIMIT_S = 10
"""How long the child may take that makes the files."""
MOST_NODES = 256
OWNER_OF_NAMESPACE = 0xB701
"""NS_GET_USERNS of ioctl_ns(2): opens the user namespace that a namespace belongs to."""


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
        self._is_refused = False
        self._due = 0.0
        self._interval_s = INTERVAL_S
        self._said = ""

    def keep(self) -> None:
        """Show what is new, and remove what has gone; a look at /dev each second."""
        now = processes.monotonic_s()
        if now < self._due or self._is_refused or not self._spec.get("has_media"):
            return
        wanted = there()
        if wanted == self._shown:
            self._due = now + INTERVAL_S
            return
        if self._show(wanted):
            self._shown, self._interval_s = wanted, INTERVAL_S
        self._due = now + self._interval_s
        if wanted != self._shown:
            self._interval_s = min(2 * self._interval_s, LONGEST_INTERVAL_S)

    def _show(self, wanted: dict[str, int]) -> bool:
        """Whether the command sees what is wanted now."""
        pid = self._first_process()
        if pid is None or not _is_apart(pid):
            return False  # Not there yet, or it has the /dev of this machine.
        gone = sorted(set(self._shown or {}) - set(wanted))
        try:
            _in_namespace(pid, wanted, gone, self._uid())
        except PermissionError as error:  # What is not permitted now never is.
            self._is_refused = True
            self._say("no device that is plugged in later is shown: %s" % error.strerror)
        except (OSError, KeyError) as error:
            self._say(str(error))
        else:
            return True
        return False

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            sys.stderr.write("media devices of %s: %s\n" % (self._revision.run_id, words))
            sys.stderr.flush()

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
    except Exception:  # noqa: BLE001 - podman is asked again later
        return None
    text = done.stdout.decode(errors="replace").strip()
    return int(text) if done.returncode == 0 and text.isdigit() and text != "0" else None


def _is_apart(pid: int) -> bool:
    """Whether a process has a mount namespace of its own."""
    try:
        return os.readlink("/proc/%d/ns/mnt" % pid) != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return False


def _in_namespace(pid: int, wanted: dict[str, int], gone: list[str], uid: int) -> None:
    """Make and remove the files in the /dev of a process.

    Raises: PermissionError, when the mount namespace or its /dev is not root's alone; OSError.
    """
    namespace = os.open("/proc/%d/ns/mnt" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check_owner(namespace)
        child = os.fork()
        if not child:
            _be_child(namespace, wanted, gone, uid)
    finally:
        os.close(namespace)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        raise OSError(errno.ETIMEDOUT, "not done within %d s" % LIMIT_S)
    if os.WEXITSTATUS(status):
        raise OSError(os.WEXITSTATUS(status), os.strerror(os.WEXITSTATUS(status)))


def _check_owner(namespace: int) -> None:
    """Raises: PermissionError, when a mount namespace belongs to others than this process's."""
    owner = fcntl.ioctl(namespace, OWNER_OF_NAMESPACE)
    try:
        found, own = os.fstat(owner), os.stat("/proc/self/ns/user")
    finally:
        os.close(owner)
    if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
        words = "the command has made the mount namespace that it is in"
        raise PermissionError(errno.EPERM, words)


def _be_child(namespace: int, wanted: dict[str, int], gone: list[str], uid: int) -> None:
    number = errno.EIO
    try:
        prctl.die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        _enter(namespace)
        _bring(wanted, gone, uid)
        number = 0
    except OSError as error:
        number = error.errno or number
    finally:
        os._exit(number)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _bring(wanted: dict[str, int], gone: list[str], uid: int) -> None:
    """No link is followed, and no folder is used that others may write to. Raises: OSError."""
    os.umask(0)
    top = _folder(device_files.DEVICES, None)
    for name in gone:
        with contextlib.suppress(OSError):  # One that was mounted there stays.
            folder, last = _folder_of(name, top)
            os.unlink(last, dir_fd=folder)
    for name, number in wanted.items():
        folder, last = _folder_of(name, top)
        _remove_earlier(folder, last, number)
        try:
            os.mknod(last, stat.S_IFCHR | 0o600, number, dir_fd=folder)
        except FileExistsError:
            continue
        os.chown(last, uid, -1, dir_fd=folder, follow_symlinks=False)


def _remove_earlier(folder: int, name: str, number: int) -> None:
    """Remove a device that had this name before and has another number by now."""
    with contextlib.suppress(OSError):  # There is none, or one that was mounted there stays.
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISCHR(found.st_mode) and found.st_rdev != number:
            os.unlink(name, dir_fd=folder)


def _folder_of(name: str, top: int) -> tuple[int, str]:
    """The open folder of a name below /dev, made if need be, and the last part of the name."""
    *inner, last = name.split("/")
    for one in inner:
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, 0o755, dir_fd=top)
        top = _folder(one, top)
    return top, last


def _folder(path: str, above: int | None) -> int:
    """A folder of root's, open; its descriptor ends with this process. Raises: OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path, flags, dir_fd=above)
    found = os.fstat(folder)
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EACCES, "others may write to a folder of its /dev")
    return folder
