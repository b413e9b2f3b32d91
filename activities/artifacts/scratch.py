"""The folder of a transfer or a delivery for what it needs on disk, such as a repository."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import structlog

from activities.artifacts.sources.tar_streams import unavailable
from activities.settings import settings

LEFT_BYTES = 1 << 30
"""What transfers leave free on the disk of the worker process."""
LEFT_FOR = timedelta(days=2)
"""How long nothing has changed in a folder that no attempt uses any more."""
MOST_ENTRIES = 1_000_000
"""How many entries of a folder are read for that; one that has more stays."""

log = structlog.get_logger("transfers")
_reserved: dict[Path, int] = {}
"""How many bytes the folders of attempts under way in this process may come to hold."""
_lock = threading.Lock()


@contextmanager
def scratch_folder(subject_id: str, token: str) -> Iterator[Path]:
    """An empty folder of one attempt, which is removed after the block.

    It lies in a folder of the subject, an artifact or a job, so what attempts of killed processes
    have left goes with its next attempt, or with an artifact; the end of a late attempt removes its
    own folder alone.
    """
    folder = _folder_of(subject_id) / token
    remove_scratch(subject_id)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        _release(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # A later attempt has its own there.
            folder.parent.rmdir()


def remove_scratch(subject_id: str) -> None:
    """Remove the folders of a subject's attempts on this machine; silent when there is none."""
    _release(_folder_of(subject_id))
    shutil.rmtree(_folder_of(subject_id), ignore_errors=True)


def remove_left_scratch() -> None:
    """Remove the folders that killed processes have left on this machine, with a log line each.

    Nothing in such a folder has changed for `LEFT_FOR`. Blocking, as long as the removal takes.
    """
    folders = settings().home / "transfers"
    since = time.time() - LEFT_FOR.total_seconds()
    for folder in sorted(folders.iterdir()) if folders.is_dir() else ():
        try:
            if not _is_left(folder, since):
                continue
            left = folder.with_name(f".{uuid4().hex}")
            folder.rename(left)  # An attempt that begins now has a folder of its own.
            shutil.rmtree(left)
        except OSError as error:
            log.warning("scratch folder stays", folder=str(folder), why=str(error))
        else:
            log.info("scratch folder removed", folder=str(folder), unchanged_for=str(LEFT_FOR))


def _is_left(folder: Path, since: float) -> bool:
    """Whether nothing in a folder has changed since then. Raises: OSError."""
    for count, entry in enumerate(_entries(folder)):
        if count >= MOST_ENTRIES or entry.lstat().st_mtime >= since:
            return False
    return True


def _entries(folder: Path) -> Iterator[Path]:
    yield folder
    for root, folders, files in os.walk(folder):
        yield from (Path(root, name) for name in (*folders, *files))


def reserve_room(folder: Path, size_bytes: int) -> None:
    """Reserve room for so many bytes in a folder, until the attempt ends whose scratch folder it is
    or lies in. A second call for a folder replaces the first.

    Raises: ApplicationError `Unavailable`, when the disk has no room for them beside what other
    attempts in this process have reserved, of which a part may be written already.
    """
    with _lock:
        others = sum(
            max(most - bytes_of_folder(each), 0)
            for each, most in _reserved.items()
            if each != folder
        )
        _check_free(folder, size_bytes, others)
        _reserved[folder] = size_bytes


def check_free(folder: Path, size_bytes: int) -> None:
    """Raises: ApplicationError `Unavailable`, when the disk has no room for so many bytes now."""
    _check_free(folder, size_bytes, 0)


def bytes_of_folder(folder: Path) -> int:
    """The bytes of all files in a folder, which others may change meanwhile."""
    size = 0
    for root, _, names in os.walk(folder):  # Silent about folders that are gone.
        for name in names:
            with suppress(FileNotFoundError):  # It has been moved or removed meanwhile.
                size += Path(root, name).lstat().st_size
    return size


def _check_free(folder: Path, size_bytes: int, reserved_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size_bytes + reserved_bytes + LEFT_BYTES:
        raise unavailable(
            f"the disk of the worker process: asked for {size_bytes} bytes, found {free} free, of "
            f"which {reserved_bytes} are reserved and {LEFT_BYTES} stay free"
        )


def _release(folder: Path) -> None:
    """Give back what has been reserved in a folder and the folders in it."""
    with _lock:
        for each in [each for each in _reserved if each.is_relative_to(folder)]:
            del _reserved[each]


def _folder_of(subject_id: str) -> Path:
    return settings().home / "transfers" / subject_id
