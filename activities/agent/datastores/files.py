"""The files of a share, as both libraries in user space show them."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from ..errors import RefusedError

FOLDER, FILE, LINK, OTHER = "folder", "file", "link", "other"
CHUNK_BYTES = 1 << 20


class Entry(NamedTuple):
    """One entry of a folder; size in bytes, mtime in whole seconds, mode: the permission bits."""

    name: str
    kind: str
    size: int = 0
    mtime: int = 0
    mode: int = 0o644


class MissingError(RefusedError):
    """There is no such file or folder on the share."""


class Files(ABC):
    """The files of one share. Paths are relative to its root path, with `/` between names.

    Raises: every method RefusedError: `datastore-away` where a later try may help,
    `datastore-refused` where it does not, and its subclass MissingError.
    """

    def takes(self, name: str) -> bool:
        """Whether the server takes this name of a file of a run for what it says."""
        del name
        return True

    @abstractmethod
    def look(self, path: str) -> Entry:
        """The entry itself; a link is not followed."""

    @abstractmethod
    def entries(self, path: str) -> Iterator[Entry]:
        """The entries of a folder; names that are none are left out."""

    @abstractmethod
    def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
        """The content of a file from a byte on."""

    def target(self, path: str) -> Optional[str]:
        """Where a link leads to; None, where that cannot be read."""
        del path
        return None


class WritableFiles(Files):
    """The files of one share that can be changed, too. Raises: as `Files`."""

    @abstractmethod
    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        """Make or replace a file."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Make a folder, whose parent is there; silent when it is there."""

    @abstractmethod
    def rename(self, path: str, to: str) -> None:
        """Rename a file; one that has the new name is replaced."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file; silent when it is gone."""


def library(name: str, package: str) -> Any:
    """The shared library. Raises: RefusedError `no-datastore-client`, naming the package."""
    try:
        return ctypes.CDLL(name, use_errno=True)
    except OSError:
        words = "%s is not installed on this machine: apt-get install %s"
        raise RefusedError("no-datastore-client", words % (name, package)) from None


def is_name(name: str) -> bool:
    """Whether a server's word for an entry is a name, and leads nowhere else."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
