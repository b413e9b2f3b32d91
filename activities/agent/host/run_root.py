"""The run root: what a run with a system layer has in the place of this machine's root.

A system layer has what apt has added for a set of Debian packages (`packages/system_layers.py`). A
folder that is in the layer and on this machine is one overlay of both, read-only; whatever the
layer does not have is the machine's own, with all that is mounted there, so that a run writes where
any other run writes. The folders above the layer itself are made of their entries, because the
kernel lays no folder over one that it is in.

The root is of the run's own mount namespace, and ends with the last process of the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat

from ..folders import Folders
from . import file_tree, trials
from .mount_namespace import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
    mount,
)

UPPER = "upper"
"""What a layer adds to this machine, at the same paths."""
ROOT = "root"
"""The empty folder of a layer at which the roots of its runs are made, each in its namespace."""
ACCOUNTS = ("passwd", "group")
"""Files of a layer with the accounts that its packages need beside those of this machine."""
BUILD_OPTIONS = "redirect_dir=off,index=off,metacopy=off"
"""What is written into a layer has its meaning without settings of the kernel."""
MS_REMOUNT, MS_UNBINDABLE, MS_PRIVATE = 32, 1 << 17, 1 << 18
MNT_DETACH = 2
_HINTS = {
    errno.EINVAL: "; the file system of that folder can hold no layer, as where it is itself an "
    "overlay: put the folder onto a disk",
}
OPAQUE = "trusted.overlay.opaque"


def enter(layer: str) -> None:
    """Give this process, and all that it will start, the root with this layer; needs root.

    Raises: OSError.
    """
    layer = os.path.realpath(layer)
    top = os.path.join(layer, ROOT)
    unshare(CLONE_NEWNS)
    # What is mounted on this machine later shows in the run as well, and never the other way.
    mount(None, "/", None, MS_REC | MS_SLAVE)
    mount("tmpfs", top, "tmpfs", MS_NODEV, "mode=755,size=4m")
    mount(None, top, None, MS_UNBINDABLE)  # What is shown in it would else show it once more.
    os.umask(0o022)
    os.chdir(layer)  # The options of an overlay have no place for long or odd paths.
    _compose("/", top)
    mount(None, top, None, MS_PRIVATE)
    _add_accounts(layer, top)
    _make_read_only(top)
    pivot(top)


def why_not(folders: Folders) -> str | None:
    """Why this machine can give no run a root of its own; None when it can."""
    if os.geteuid() != 0:
        return "the node's account is not root"
    os.makedirs(folders.system_layers, mode=0o700, exist_ok=True)
    trial = os.path.join(folders.system_layers, ".trial-" + os.urandom(8).hex())
    try:
        return trials.failure_of(lambda: _try(trial, folders.root))
    finally:
        file_tree.remove(trial)


def _try(trial: str, folder: str) -> None:
    """Be in a root with a layer. Raises: OSError, in words for people."""
    try:
        _be_over(trial)
    except OSError as error:
        number = error.errno or 0
        words = "overlayfs with %s: %s: %s" % (folder, error.strerror, os.strerror(number))
        raise OSError(words + _HINTS.get(number, "")) from error


def _be_over(trial: str) -> None:
    for name in (UPPER, "work", ROOT):
        os.makedirs(os.path.join(trial, name))
    unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.chdir(trial)
    lay_over("/", ROOT, UPPER, "work")
    with open(os.path.join(trial, ROOT, ".baseload"), "w") as file:
        file.write("written")
    pivot(os.path.join(trial, ROOT))


def lay_over(lower: str, at: str, upper: str, work: str) -> None:
    """Mount a folder of this machine such that what is written there goes into `upper`."""
    options = "lowerdir=%s,upperdir=%s,workdir=%s," % (lower, upper, work)
    mount("overlay", at, "overlay", MS_NODEV, options + BUILD_OPTIONS)


def unshare(flags: int) -> None:
    """Give this process namespaces of its own. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def pivot(top: str) -> None:
    """Make a mounted folder the root of this mount namespace, which then has no way to the old
    one. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.chdir(top)
    if libc.pivot_root(b".", b".") != 0 or libc.umount2(b".", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")


def mounted_below(folder: str) -> list[str]:
    """The paths below a folder at which something is mounted, but not those below one of these."""
    found: list[str] = []
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        paths = {plain(line.split()[4]) for line in file}
    for path in sorted(paths - {"/"}, key=lambda path: path.split("/")):
        is_inside = bool(found) and path.startswith(found[-1] + "/")
        if path.startswith(folder.rstrip("/") + "/") and not is_inside:
            found.append(path)
    return found


def plain(path: str) -> str:
    """A path of the list of mounts, which has its blanks and the like in octal digits."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found.group(1), 8)), path)


def show(source: str, target: str, *, read_only: bool = False) -> None:
    """Show a file or a folder, with all that is mounted in it, at a path that does not exist."""
    found = os.lstat(source)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
        return
    if stat.S_ISDIR(found.st_mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    mount(source, target, None, MS_BIND | (0 if read_only else MS_REC))
    if read_only:
        _make_read_only(target)


def _make_read_only(target: str) -> None:
    mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV)


def _compose(folder: str, top: str) -> None:
    """Make one folder above the layer, in the root at `top`, of the entries that it has."""
    of_layer = set(_names(UPPER + folder))
    hides = _is_opaque(UPPER + folder)
    for name in sorted(of_layer | (set() if hides else set(_names(folder)))):
        path = os.path.join(folder, name)
        if name not in of_layer:
            with contextlib.suppress(OSError):  # It has gone, or is closed to root as well.
                show(path, top + path)
        elif not _is_whiteout(UPPER + path):
            _join(path, top)


def _join(path: str, top: str) -> None:
    """Show what the layer has at a path, together with what this machine has there."""
    if not (_is_folder(UPPER + path) and _is_folder(path)) or _is_opaque(UPPER + path):
        show(os.path.abspath(UPPER + path), top + path, read_only=True)
        return
    os.mkdir(top + path)
    if (os.path.dirname(top) + "/").startswith(path + "/"):
        _compose(path, top)
        found = os.stat(path)
        os.chown(top + path, found.st_uid, found.st_gid)
        shutil.copymode(path, top + path)
        return
    _overlay(path, top)


def _overlay(path: str, top: str) -> None:
    """Show a folder of the layer over that of this machine, and what is mounted in the latter."""
    options = "lowerdir=%s:%s" % (UPPER + path, path)
    mount("overlay", top + path, "overlay", MS_RDONLY | MS_NODEV, options)
    for inner in mounted_below(path):
        if _is_folder(UPPER + inner) and os.path.isdir(inner):
            _overlay(inner, top)  # A file system of its own.
            continue
        with contextlib.suppress(OSError):  # The layer has something else there.
            mount(inner, top + inner, None, MS_BIND | MS_REC)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_whiteout(path: str) -> bool:
    """Whether the layer says so that something is gone."""
    found = os.lstat(path)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(path: str) -> bool:
    """Whether the layer has a folder in the place of the machine's, and not over it."""
    try:
        return os.getxattr(path, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _add_accounts(layer: str, top: str) -> None:
    """Add the accounts of the layer's packages to those that this machine has by now."""
    for name in ACCOUNTS:
        with open(os.path.join(layer, name), "rb") as file:
            more = file.read().splitlines(keepends=True)
        target = os.path.join("/etc", name)
        with open(target, "rb") as file:
            known = file.read()
        names = {line.partition(b":")[0] for line in known.splitlines()}
        more = [line for line in more if line.partition(b":")[0] not in names]
        if not more:
            continue
        part = os.path.join(top, "." + name)
        with open(part, "wb") as file:
            file.write(known + b"".join(more))
        mount(part, top + target, None, MS_BIND)
        _make_read_only(top + target)
        os.unlink(part)
