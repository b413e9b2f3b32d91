"""The root of a federated run: programs of the machine, its own folders, and nothing else.

What it may write to is memory, and never this machine's disk, but for its output and the folders of
datastores. No other folder of the machine is there: so neither a socket of a service, nor a file of
another run. The root is of the run's own mount namespace, and ends with the last process of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import Any, List

from ..folders import COMMAND, KEYS, OWN_ENVIRONMENT, SETUP, Run
from ..host import mount_namespace, run_contents, run_root
from ..host.mount_namespace import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    MS_SLAVE,
    mount,
)
from .hardening import has_swap

ROOT = "root"
"""The empty folder of the run at which its root is made."""
PROGRAMS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt", "etc")
IN_MEMORY = ("work", "state")
"""The folders of the run that it finds as they were staged, and writes to in memory alone."""
WRITABLE = ("output", SETUP)
READABLE = (COMMAND, "input", OWN_ENVIRONMENT, KEYS)
FOR_ALL = ("tmp", "var/tmp", "run/lock", "dev/shm")
EMPTY = ("run", "root", "home", "mnt", "srv", "media")


def make(run: Run, spec: dict[str, Any], hosts: str) -> str:
    """Make the root of a run in a mount namespace of its own; return where it is, until `enter`.

    hosts: what its /etc/hosts says. Needs root, and the run's other mounts. Raises: OSError.
    """
    run_root.unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_SLAVE)
    top = run.at(ROOT)
    with contextlib.suppress(FileExistsError):
        os.mkdir(top, 0o700)
    mount_memory(top, spec)
    os.umask(0o022)
    for name in EMPTY:
        os.makedirs(os.path.join(top, name), 0o755)
    for name in PROGRAMS:
        if os.path.lexists("/" + name):
            run_root.show("/" + name, os.path.join(top, name))
            close(os.path.join(top, name))
    run_root.show("/proc", top + "/proc")
    run_root.show("/dev", top + "/dev")
    _mount_system(top)
    for name in FOR_ALL:
        _open_to_all(os.path.join(top, name))
    _show_python(run, spec, top)
    _show_run(run, spec, top)
    _replace(top, "etc/hosts", hosts)
    return top


def cover(run: Run, spec: dict[str, Any]) -> str:
    """Let a container that this process starts have the run's folders in memory; where these are.

    The container itself has a root of its own, see `Confinement.options`. Raises: OSError.
    """
    run_root.unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_SLAVE)
    top = run.at(ROOT)
    with contextlib.suppress(FileExistsError):
        os.mkdir(top, 0o700)
    mount_memory(top, spec)
    os.umask(0o022)
    os.makedirs(top + run.path, 0o755)
    for name in IN_MEMORY:
        copy(run.at(name), top + run.at(name))
        mount(top + run.at(name), run.at(name), None, MS_BIND)
    return top


def show_model(folder: str, target: str | None) -> None:
    """Let nobody write to the model in memory.

    target: where it is shown as well, such as in the run's own folder for a container.

    Raises: OSError.
    """
    mount(folder, folder, None, MS_BIND)
    mount_namespace.make_read_only(folder)
    if target is not None:
        os.makedirs(target, 0o755, exist_ok=True)
        mount(folder, target, None, MS_BIND)


def enter(top: str) -> None:
    """Be in the root that was made, from which no way leads out. Raises: OSError."""
    run_root.pivot(top)


def mount_memory(top: str, spec: dict[str, Any]) -> None:
    """Mount memory that is never written to swap. Raises: OSError."""
    options = "mode=755"
    if spec.get("memory_bytes"):
        options += ",size=%d" % spec["memory_bytes"]
    flags = MS_NOSUID | MS_NODEV
    try:
        mount("tmpfs", top, "tmpfs", flags, options + ",noswap")
    except OSError as error:  # A kernel before 6.4.
        if error.errno != errno.EINVAL:
            raise
        kind = "ramfs" if has_swap() else "tmpfs"
        mount(kind, top, kind, flags, "mode=755" if kind == "ramfs" else options)


def _mount_system(top: str) -> None:
    """Show the devices of the machine, and of networks that of the run alone."""
    os.mkdir(top + "/sys", 0o755)
    with contextlib.suppress(OSError):  # A container may have no right to it.
        mount("sysfs", top + "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _open_to_all(path: str) -> None:
    """A folder in memory that all may write to, at a path that may be of another file system."""
    os.makedirs(path, 0o755, exist_ok=True)
    if path.rpartition("/")[0].endswith("/dev"):
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    os.chmod(path, 0o1777)


def _show_python(run: Run, spec: dict[str, Any], top: str) -> None:
    """Show the environments of packages, and the Python that they are made of."""
    shown = [run.folders.packages]
    if spec.get("packages_path"):
        python = os.path.realpath(os.path.join(spec["packages_path"], "bin", "python"))
        shown.append(os.path.dirname(os.path.dirname(python)))
    for folder in shown:
        if not os.path.isdir(folder) or os.path.lexists(top + folder):
            continue
        os.makedirs(os.path.dirname(top + folder), 0o755, exist_ok=True)
        run_root.show(folder, top + folder)
        close(top + folder)


def _show_run(run: Run, spec: dict[str, Any], top: str) -> None:
    """Show the folders of the run, at their own paths."""
    os.makedirs(top + run.path, 0o755, exist_ok=True)
    bindings = spec.get("bindings") or {}
    written = [run_contents.WRITTEN + one["name"] for one in run_contents.written(spec)]
    for name in {*READABLE, *run_contents.folders(spec)}:
        if run.has(name) and name not in bindings:
            run_root.show(run.at(name), top + run.at(name))
            close(top + run.at(name))
    for name in IN_MEMORY:
        if run.has(name) and name not in bindings:
            copy(run.at(name), top + run.at(name))
    for name in [*WRITABLE, *written, *bindings]:
        target = top + run.at(name)
        if run.has(name) and not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            run_root.show(run.at(name), target)


def copy(source: str, target: str) -> None:
    """Copy a folder with the owners, modes and links that it has."""

    def copy_file(one: str, other: str) -> None:
        shutil.copy2(one, other, follow_symlinks=False)
        found = os.lstat(one)
        os.lchown(other, found.st_uid, found.st_gid)

    shutil.copytree(source, target, symlinks=True, copy_function=copy_file)
    for folder, folders, _ in os.walk(source):
        inside = os.path.join(target, os.path.relpath(folder, source))
        for name in [".", *folders]:
            found = os.lstat(os.path.join(folder, name))
            os.lchown(os.path.join(inside, name), found.st_uid, found.st_gid)


def close(target: str) -> None:
    """Let nobody write to what is mounted at a path and below. Raises: OSError."""
    for path in [target, *_mounted(target)]:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            continue
        mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _mounted(folder: str) -> List[str]:
    """All paths below a folder at which something is mounted."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        paths = {run_root.plain(line.split()[4]) for line in file}
    return sorted(path for path in paths if path.startswith(folder + "/"))


def _replace(top: str, name: str, text: str) -> None:
    """Show another text in the place of a file of the machine."""
    path = os.path.join(top, name)
    if not os.path.isfile(path):
        return
    part = os.path.join(top, ".part")
    with open(part, "w") as file:
        file.write(text)
    mount(part, path, None, MS_BIND)
    mount_namespace.make_read_only(path)
    os.unlink(part)
