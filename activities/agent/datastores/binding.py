"""The folders of datastores that a run sees in the place of its own input, output and scratch."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any

from ..folders import Run
from ..host.mount_namespace import (
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
    make_read_only,
    mount,
)
from ..host.run_root import MS_REMOUNT, unshare
from .kernel import is_mounted

_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def enter(run: Run, bindings: dict[str, dict[str, Any]]) -> None:
    """Show this process, and all that it will start, folders of mounts; needs root.

    bindings: by folder of the run, `at` (the mount), `names` (the way from its root) and
    `read_only`; `is_copied` for a folder of the run itself, with a copy that nobody may change.
    Raises: OSError, also where a name has become a link since the staging, or the datastore is not
    mounted any more; not where copies alone are to be shown, on a machine without mounts.
    """
    copied = [folder for folder, binding in bindings.items() if binding.get("is_copied")]
    try:
        unshare(CLONE_NEWNS)
        mount(None, "/", None, MS_REC | MS_SLAVE)
    except OSError:
        if len(copied) < len(bindings):
            raise
        return
    for folder in copied:
        mount(run.at(folder), run.at(folder), None, MS_BIND)
        make_read_only(run.at(folder))
    for folder, binding in bindings.items():
        if folder in copied:
            continue
        if not is_mounted(binding["at"]):  # Else the run would write into a folder of this machine.
            raise OSError(errno.ENODEV, "its datastore is not mounted any more", binding["at"])
        descriptor = open_below(binding["at"], binding["names"])
        target = run.at(folder)
        try:
            mount("/proc/self/fd/%d" % descriptor, target, None, MS_BIND)
        finally:
            os.close(descriptor)
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC
        mount(None, target, None, flags | (MS_RDONLY if binding["read_only"] else 0))


def open_below(top: str, names: list[str], *, make: bool = False) -> int:
    """A folder below another one, opened name by name, so that no link is followed.

    make: whether missing folders are made. Raises: OSError.
    """
    descriptor = os.open(top, _FLAGS & ~os.O_NOFOLLOW)
    for name in names:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=descriptor)
        try:
            inner = os.open(name, _FLAGS, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
