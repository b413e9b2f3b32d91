"""The folder of a transfer for what its source needs on disk, such as a repository."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from activities.artifacts.sources.tar_streams import unavailable
from activities.settings import settings

LEFT_BYTES = 1 << 30
"""What transfers leave free on the disk of the worker process."""


@contextmanager
def scratch_folder(artifact_id: str, token: str) -> Iterator[Path]:
    """An empty folder of one attempt, which is removed after the block.

    It lies in a folder of the artifact, so what attempts of killed processes have left goes with
    the next attempt, or with the artifact; the end of a late attempt removes its own folder alone.
    """
    folder = _folder_of(artifact_id) / token
    remove_scratch(artifact_id)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # A later attempt has its own there.
            folder.parent.rmdir()


def remove_scratch(artifact_id: str) -> None:
    """Remove the folders of an artifact's transfers on this machine; silent when there is none."""
    shutil.rmtree(_folder_of(artifact_id), ignore_errors=True)


def _folder_of(artifact_id: str) -> Path:
    return settings().home / "transfers" / artifact_id


def check_room(folder: Path, size_bytes: int) -> None:
    """Raises: ApplicationError `Unavailable`, when the disk has no room for so many bytes now."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes + LEFT_BYTES:
        raise unavailable(
            f"the disk of the worker process: asked for {size_bytes} bytes, found {free} free, of "
            f"which {LEFT_BYTES} stay so"
        )
