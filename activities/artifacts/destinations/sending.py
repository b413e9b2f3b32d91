"""The files of a stored output on their way to a destination, and how far an attempt has come."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from sqlmodel import Session

from activities.artifacts.sources.tar_streams import refused, unavailable

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


def shown_place(root: str, prefix: str) -> str:
    """The folder below a root, for a person: `s3://results/runs/7`."""
    return f"{root}/{prefix.strip('/')}".rstrip("/")


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
    held: Callable[[Session], object] = lambda _: None
    """Locks the job's row in a transaction that makes what is sent, if this attempt may still do
    so. Raises: as `tell`, also when the delivery is over."""

    @property
    def mark(self) -> str:
        """What a commit or a version says of its origin: the same for every repeat."""
        return MARK.format(job_id=self.job_id, attempt=self.attempt)


MOST_NAME_BYTES = 1024
"""What the object stores take of a name, with its prefix."""


def send_each(
    sending: Sending, prefix: str, put: Callable[[str, OutputFile, Callable[[], None]], None]
) -> None:
    """Send the files one after the other, going on after those that earlier attempts have sent.

    put: stores a file under a whole name, replacing an earlier one; it calls the last argument now
    and then while it sends a large file.
    Raises: ApplicationError, as `Sending.tell`; `Refused`, for a name that is too long.
    """
    done = sending.done
    for file in sending.files(done):
        name = name_below(prefix, file.name)
        if (size := len(name.encode())) > MOST_NAME_BYTES:
            raise refused(f"{name[:200]}…: has {size} bytes as a name, at most {MOST_NAME_BYTES}")
        put(name, file, partial(sending.tell, done))
        done += 1
        sending.tell(done)


def read_whole(file: OutputFile, size_bytes: int) -> bytes:
    """The next bytes of a file's content. Raises: ApplicationError, when it has fewer."""
    content = file.content.read(size_bytes)
    if len(content) != size_bytes:
        raise unavailable(f"{file.name[:200]}: its stored output broke off")
    return content
