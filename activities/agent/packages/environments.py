"""The virtual environments of jobs: one for each set of packages, built once, shared read-only.

An environment's folder is used only when its marker exists, and it is built under a lock, so two
jobs build it once, and an interrupted build starts again. `building.py` builds it.

Packages of the machine's owner may come from an index that only the owner may read. They lie in a
folder of their own, which runs of others cannot enter, and they serve no run of others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..folders import OWNED_GROUP, Folders, take_lock
from ..host import file_tree, job_accounts
from ..host.interpreter import interpreter_for_jobs
from ..loading import load

if TYPE_CHECKING:
    from ..cache.location import PackageCache
    from .requirements import Requirements

MARKER = "baseload-complete"
FORGOTTEN = "baseload-forgotten"
"""The marker of what is about to be removed."""
KEY = re.compile(r"[0-9a-f]{32}\Z")
"""The name of the folder of an environment or a layer."""


class Wanted:
    """What an environment has: packages by name, and what a file of the job's code asks for."""

    def __init__(
        self, packages: Sequence[str] = (), requirements: Requirements | None = None
    ) -> None:
        self.packages = sorted(set(packages))
        self.requirements = requirements

    def __bool__(self) -> bool:
        return bool(self.packages or self.requirements)

    def lines(self) -> list[str]:
        """Lines that are equal for equal environments alone."""
        return [*(self.requirements.key() if self.requirements else ()), *self.packages]


def environment(
    folders: Folders,
    wanted: Wanted,
    *,
    owned: bool,
    cache: PackageCache | None = None,
    layer: str | None = None,
) -> tuple[str, int | None]:
    """The virtual environment with these packages, built if it does not exist.

    Returns its path, and the group that a run needs to read it; None: every run can read it.
    owned: whether it is for a run of the machine's owner, whose settings of pip it is built with.
    cache: the region's cache, through which pip uses the package index; pip uses the
    index itself when the cache does not answer, or the installation from the cache fails. The cache
    may read its index with the owner's credentials, so only the owner's packages come through it.
    layer: the run's system layer, without which neither the set-up code of its packages nor what
    that has built may work.
    Raises: RefusedError `packages` with the line in which pip says why; `job-user`; `network-wall`.
    """
    python, version = interpreter_for_jobs(folders)
    # An earlier release built the sets without this line with the owner's settings, for everybody.
    whose = ["others"] if wanted and not owned else []
    within = [layer] if wanted and layer else []
    text = "\n".join([python, version, *within, *whose, *wanted.lines()])
    folder, group = _owned_folder(folders) if wanted and owned else (folders.packages, None)
    path = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:32])
    if take(path):
        return path, group
    build = load("packages.building:build")
    options = {"owned": owned, "group": group, "cache": cache if owned else None, "layer": layer}
    build(folders, python, path, wanted, **options)
    return path, group


def python_of(folders: Folders, path: str) -> tuple[str, str]:
    """The interpreter that an environment is made of, and its version."""
    if not os.path.isdir(os.path.join(path, "conda-meta")):
        return interpreter_for_jobs(folders)
    version: str = load("packages.conda:version_of_python")(path)
    return os.path.join(path, "bin", "python"), version


def is_whole(path: str) -> bool:
    """Whether our own marker is there; a marker of another owner may come from a package."""
    try:
        found = os.lstat(os.path.join(path, MARKER))
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def take(path: str) -> bool:
    """Whether an environment or a layer is whole; what has been taken counts as used just now."""
    if not is_whole(path):
        return False
    try:
        os.utime(os.path.join(path, MARKER))
    except FileNotFoundError:  # It has just been forgotten.
        return False
    return True


def forget(path: str, oldest: float) -> bool:
    """Remove an environment or a layer that nobody has taken since `oldest`; whether it is gone.

    It is removed under the lock of its build. Whoever takes it does without the lock; so its marker
    is first renamed, after which nobody takes it, and only then looked at for the last time.
    """
    if _used_at(path) >= oldest:
        return False
    lock = take_lock(path + ".lock", wait=False)
    if lock is None:
        return False
    try:
        marker, aside = os.path.join(path, MARKER), os.path.join(path, FORGOTTEN)
        file_tree.remove(aside)  # A package may have put anything there.
        with contextlib.suppress(FileNotFoundError):  # A broken build has left none.
            os.rename(marker, aside)
            if os.lstat(aside).st_mtime >= oldest:  # Somebody has taken it meanwhile.
                os.rename(aside, marker)
                return False
        file_tree.remove(path)
        return True
    finally:
        os.close(lock)


def _used_at(path: str) -> float:
    """When it was used last, or its build begun."""
    for name in (os.path.join(path, MARKER), path):
        with contextlib.suppress(OSError):
            return os.lstat(name).st_mtime
    return time.time()


def _owned_folder(folders: Folders) -> tuple[str, int | None]:
    """The folder of the owner's packages, and the group of the runs that may enter it."""
    os.makedirs(folders.owned_packages, mode=0o700, exist_ok=True)
    if os.geteuid() != 0:  # All runs of such a node are the owner's.
        return folders.owned_packages, None
    group = job_accounts.make_group(OWNED_GROUP)
    os.chown(folders.owned_packages, 0, group)
    os.chmod(folders.owned_packages, 0o710)
    return folders.owned_packages, group
