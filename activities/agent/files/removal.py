"""The removal of a run for good: a late request for a removed run makes no new folder.

A request may be on its way to the node while its job is cancelled, and arrive after the run was
ended and removed. The removal therefore leaves a tombstone before the folder goes, and every verb
that makes files in a run's folder checks the tombstone before and after.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from ..errors import RefusedError
from ..folders import Folders, Run
from ..host import file_tree

REMOVED = ".removed-"
REFUSAL = "removed"


def remove(run: Run) -> bool:
    """Remove a run, and return whether nothing is left of it, nor of an earlier attempt.

    The folder is first renamed, so that no other process finds half of it, or writes into it.
    """
    folders = run.folders
    with contextlib.suppress(OSError):  # On a full disk, making room matters more.
        folders.make()
        with open(_tombstone(run), "wb"):
            pass
    prefix = REMOVED + run.run_id + "."
    if os.path.lexists(run.path):
        with contextlib.suppress(FileNotFoundError):
            aside = os.path.join(folders.runs, prefix + os.urandom(8).hex())
            os.mkdir(aside, 0o700)
            os.rename(run.path, os.path.join(aside, "run"))
    _remove_all(folders.runs, prefix)
    left = [name for name in names_in(folders.runs) if name.startswith(prefix)]
    return not left and not os.path.lexists(run.path)


@contextlib.contextmanager
def unless_removed(run: Run) -> Iterator[None]:
    """Guard a block that makes files in the run's folder.

    Raises: RefusedError `removed`, with nothing left, when the run was removed before or meanwhile.
    """
    _refuse_if_removed(run)
    try:
        yield
    finally:
        _refuse_if_removed(run)


def was_removed(run: Run) -> bool:
    """Whether the run was removed from this node."""
    return os.path.exists(_tombstone(run))


def _refuse_if_removed(run: Run) -> None:
    if was_removed(run):
        remove(run)
        raise RefusedError(REFUSAL, "run %s: it was removed from this node" % run.run_id)


def _tombstone(run: Run) -> str:
    return os.path.join(run.folders.removed, run.run_id)


def forget(folders: Folders, max_age_s: float) -> None:
    """Remove the tombstones older than `max_age_s`, and the rest of interrupted removals."""
    _remove_all(folders.runs, REMOVED)
    oldest = time.time() - max_age_s
    for name in names_in(folders.removed):
        path = os.path.join(folders.removed, name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime < oldest:
                os.unlink(path)


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted; empty when the folder does not exist."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _remove_all(folder: str, prefix: str) -> None:
    for name in names_in(folder):
        if name.startswith(prefix):
            file_tree.remove(os.path.join(folder, name))
