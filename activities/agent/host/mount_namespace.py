"""The mount namespace of a run: a /dev with its GPUs alone, and a /proc with its processes alone.

A run with an account of its own starts in a mount namespace whose /dev has only what
`device_files.of_run` names. Owners and modes of the device files would not hold: each tool of the
driver that root starts sets them back, so that everybody may open every GPU. The namespace ends
with the last process of the run, however that ends, and nothing of this machine's own is changed.

An account may ask the system's service manager to start programs for it, outside of the run; so a
run has no way to the system bus.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat

from ..folders import Folders
from . import device_files, nvidia_gpus

SYSTEM_BUS = "/run/dbus"
PROC_OF_ITS_OWN = (5, 8)
OPEN = "open-devices"
PTMX = os.makedev(5, 2)
CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 32, 4096, 16384, 1 << 19


def prepare(folders: Folders) -> str | None:
    """Why this machine cannot keep its GPUs apart; None when it can, or has none."""
    reason = _why_open()
    note = os.path.join(folders.root, OPEN)
    if reason is not None:
        os.close(os.open(note, os.O_WRONLY | os.O_CREAT, 0o600))
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(note)
    return reason


def enter(folders: Folders, names: list[str], own: dict[str, str]) -> bool:
    """Give this process, and all that it will start, a /dev with these names alone; needs root.

    It sees no processes of other accounts any more, where the kernel can hide them.
    own: by place, the folder that it finds there.
    Returns whether it has a mount namespace of its own now.
    Raises: OSError, when that cannot be had; but not where there are no GPUs, or where `prepare`
    has said so.
    """
    try:
        real = _cover()
    except OSError:
        if device_files.of_gpus() and not os.path.exists(os.path.join(folders.root, OPEN)):
            raise
        return False
    os.umask(0o022)
    for name in names:
        _bring(real, name)
    os.close(real)
    if _can_hide():
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2")
    if os.path.isdir(SYSTEM_BUS):
        mount("tmpfs", SYSTEM_BUS, "tmpfs", MS_NOSUID | MS_NOEXEC | MS_RDONLY, "mode=555,size=4k")
    for place, folder in own.items():
        mount(folder, place, None, MS_BIND)
    return True


def _cover() -> int:
    """Cover /dev for this process by an empty one; return what leads to the files of the real one.

    Raises: OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    # What is mounted on this machine later shows in the run as well, and never the other way.
    mount(None, "/", None, MS_REC | MS_SLAVE)
    real = os.open(device_files.DEVICES, os.O_RDONLY | os.O_DIRECTORY)
    mount("tmpfs", device_files.DEVICES, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k")
    return real


def _bring(real: int, name: str) -> None:
    """Show one file or folder of the real /dev; silent when it is gone."""
    source = "/proc/self/fd/%d/%s" % (real, name)
    target = os.path.join(device_files.DEVICES, name)
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(source)
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == PTMX:
            _make_ptmx(target)
            return
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(target, 0o755)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
        mount(source, target, None, MS_BIND | MS_REC)


def _make_ptmx(target: str) -> None:
    """Make the file that opens a terminal: the kernel looks for `pts` in the folder of that file,
    and finds no folder of a file that is mounted."""
    try:
        os.mknod(target, stat.S_IFCHR | 0o666, PTMX)
    except PermissionError:
        os.symlink("pts/ptmx", target)
        return
    os.chmod(target, 0o666)


def _can_hide() -> bool:
    """Whether a /proc of the run can have settings of its own and shows the same otherwise: older
    kernels have one for all, and containers have files of their own in it."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if release is None or tuple(map(int, release.groups())) < PROC_OF_ITS_OWN:
        return False
    with open("/proc/self/mountinfo") as file:
        inside = {line.split()[4] for line in file if line.split()[4].startswith("/proc/")}
    return inside <= {"/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd"}


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount something, as mount(2) does. Raises: OSError, which names the target."""
    libc = ctypes.CDLL(None, use_errno=True)
    named = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    if libc.mount(*named, ctypes.c_ulong(flags), options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount %s" % target)


def make_read_only(target: str) -> None:
    """Let nobody write to what is mounted there, nor use its devices and its set-user-id files.

    Raises: OSError.
    """
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
    mount(None, target, None, flags)


def _why_open() -> str | None:
    if os.geteuid() != 0 or not device_files.of_gpus():
        return None
    if device_files.have_one_device() and len(nvidia_gpus.gpus()) > 1:
        return "all its GPUs have one device: nothing keeps a job off others' GPUs"
    pid = os.fork()
    if not pid:
        number = errno.EIO
        try:
            _cover()
            number = 0
        except OSError as error:
            number = error.errno or number
        finally:
            os._exit(number)
    number = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    if not number:
        return None
    words = "no run can have a /dev of its own (%s): nothing keeps a job off others' GPUs"
    return words % os.strerror(number)
