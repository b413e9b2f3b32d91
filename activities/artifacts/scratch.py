"""The folder of a transfer for what its source needs on disk, such as a repository."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from activities.settings import settings


@contextmanager
def scratch_folder(artifact_id: str) -> Iterator[Path]:
    """An empty folder, which is removed after the block.

    It has the name of the artifact, so what the attempt of a killed process has left goes with the
    next attempt, or with the artifact.
    """
    folder = _folder_of(artifact_id)
    remove_scratch(artifact_id)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        remove_scratch(artifact_id)


def remove_scratch(artifact_id: str) -> None:
    """Remove the folder of an artifact's transfer on this machine; silent when there is none."""
    shutil.rmtree(_folder_of(artifact_id), ignore_errors=True)


def _folder_of(artifact_id: str) -> Path:
    return settings().home / "transfers" / artifact_id
