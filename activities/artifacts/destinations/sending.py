"""The files of a stored output on their way to a destination, and how far an attempt has come."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MARK = "baseload job {job_id}, attempt {attempt}"
"""What a commit or a version says of its origin, by which a repeat finds it."""


@dataclass(frozen=True)
class OutputFile:
    """A file of an output; its content can be read until the next file is asked for."""

    name: str
    """Relative, below the prefix of the destination; of several workers below `worker-N/`."""
    size_bytes: int
    content: IO[bytes]


def name_below(prefix: str, name: str) -> str:
    """The whole name of a file at a destination, below a prefix, which may be empty."""
    folder = prefix.strip("/")
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True)
class Sending:
    """One attempt of a delivery."""

    job_id: str
    attempt: int
    """The attempt of the job, whose output it is."""
    files: Callable[[int], Iterator[OutputFile]]
    """The files of all workers in a lasting order, from one on; each has been checked before."""
    packed: Callable[[], Iterator[bytes]]
    """The stored tar.gz of the first worker, which is the only one where it is sent."""
    file_count: int
    size_bytes: int
    """Of all files, unpacked."""
    packed_bytes: int
    """Of the first worker's tar.gz."""
    scratch: Path
    """An empty folder, for what must be on disk before it is sent."""
    done: int
    """How many files earlier attempts have sent."""
    tell: Callable[[int], None]
    """Says that so many files are sent, for a later attempt; also called, with the same number,
    while a large file is sent. Raises: ApplicationError, when this attempt is not the newest any
    more."""

    @property
    def mark(self) -> str:
        """What a commit or a version says of its origin: the same for every repeat."""
        return MARK.format(job_id=self.job_id, attempt=self.attempt)
