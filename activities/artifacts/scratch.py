"""The folder of a transfer or a delivery for what it needs on disk, such as a repository."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from activities.artifacts.sources.tar_streams import unavailable
from activities.settings import settings

LEFT_BYTES = 1 << 30
"""What transfers leave free on the disk of the worker process."""


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
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # A later attempt has its own there.
            folder.parent.rmdir()


def remove_scratch(subject_id: str) -> None:
    """Remove the folders of a subject's attempts on this machine; silent when there is none."""
    shutil.rmtree(_folder_of(subject_id), ignore_errors=True)


def check_room(folder: Path, size_bytes: int) -> None:
    """Raises: ApplicationError `Unavailable`, when the disk has no room for so many bytes now."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes + LEFT_BYTES:
        raise unavailable(
            f"the disk of the worker process: asked for {size_bytes} bytes, found {free} free, of "
            f"which {LEFT_BYTES} stay so"
        )


def _folder_of(subject_id: str) -> Path:
    return settings().home / "transfers" / subject_id
