"""Removing a run for good: what was asked before that and arrives after it makes no new folder.

A command may be under way to the node when its job is cancelled, and be carried out when the run
was ended and removed. So the removal leaves a mark before the folder goes, and whoever makes
something in a run's folder looks for it before and after.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

from ..errors import RefusedError
from ..folders import Folders, Run

REMOVED = ".removed-"
REFUSAL = "removed"


def remove(run: Run) -> bool:
    """Whether nothing of the run is left, of an earlier try neither.

    It goes out of the way first, all at once: nobody finds half of it, or writes into it.
    """
    folders = run.folders
    with contextlib.suppress(OSError):  # On a full disk what matters more is to make room.
        folders.make()
        with open(_mark(run), "wb"):
            pass
    prefix = REMOVED + run.run_id + "."
    if os.path.lexists(run.path):
        with contextlib.suppress(FileNotFoundError):
            os.rename(run.path, os.path.join(tempfile.mkdtemp("", prefix, folders.runs), "run"))
    _remove_all(folders.runs, prefix)
    left = [name for name in names_in(folders.runs) if name.startswith(prefix)]
    return not left and not os.path.lexists(run.path)


@contextlib.contextmanager
def unless_removed(run: Run) -> Iterator[None]:
    """For the time in which something is made in the run's folder.

    Raises: RefusedError `removed`, with nothing left, when the run was removed before or meanwhile.
    """
    _refuse_if_removed(run)
    try:
        yield
    finally:
        _refuse_if_removed(run)


def was_removed(run: Run) -> bool:
    """Whether it was here, and is to be here no more."""
    return os.path.exists(_mark(run))


def _refuse_if_removed(run: Run) -> None:
    if was_removed(run):
        remove(run)
        raise RefusedError(REFUSAL, "run %s: it was removed from this node" % run.run_id)


def _mark(run: Run) -> str:
    return os.path.join(run.folders.removed, run.run_id)


def forget(folders: Folders, max_age_s: float) -> None:
    """Remove the marks of what was removed longer ago, and what removals left that were cut off."""
    _remove_all(folders.runs, REMOVED)
    oldest = time.time() - max_age_s
    for name in names_in(folders.removed):
        path = os.path.join(folders.removed, name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime < oldest:
                os.unlink(path)


def names_in(folder: str) -> list[str]:
    """What lies in a folder, sorted; nothing when it is not there."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _remove_all(folder: str, prefix: str) -> None:
    for name in names_in(folder):
        if name.startswith(prefix):
            _open_folders(os.path.join(folder, name))
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _open_folders(top: str) -> None:
    """Where the command ran as the user that we are, it may have closed some to that user."""
    if os.geteuid() == 0:
        return
    for folder, folders, _ in os.walk(top):
        for name in folders:
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
