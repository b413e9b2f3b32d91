"""The parts of an artifact's content: the tar of a folder, which is the same for equal files."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from baseload.packing import LeftOut, PackingError, check_folder, entry_of, members_of

READ_BYTES = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class FolderTar:
    """The tar of a folder, which is made as it is read: nothing is written on this machine."""

    members: tuple[tuple[Path, str], ...]
    size_bytes: int
    left_out: tuple[LeftOut, ...]

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        """The tar in parts of this size; the last one has what is left.

        Raises: PackingError, when a file changes its size meanwhile.
        """
        waiting = bytearray()
        for chunk in self._chunks():
            waiting += chunk
            while len(waiting) >= part_bytes:
                yield bytes(waiting[:part_bytes])
                del waiting[:part_bytes]
        if waiting:
            yield bytes(waiting)

    def _chunks(self) -> Iterator[bytes]:
        for path, name in self.members:
            entry = entry_of(path, name)
            yield _header(entry)
            if not entry.isdir():
                yield from _content(path, entry)
        yield _END


def tar_of(folder: Path) -> FolderTar:
    """The tar of a folder's files, without what its ignore files name.

    Raises: PackingError, for a link that leaves the folder, and for devices, sockets and pipes.
    """
    check_folder(folder)
    left_out: list[LeftOut] = []
    members = tuple(members_of(folder.resolve(), left_out))
    size = len(_END)
    for path, name in members:
        entry = entry_of(path, name)
        size += len(_header(entry)) + entry.size + (-entry.size % tarfile.BLOCKSIZE)
    return FolderTar(members, size, tuple(left_out))


def _header(entry: tarfile.TarInfo) -> bytes:
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(path: Path, entry: tarfile.TarInfo) -> Iterator[bytes]:
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            size += len(chunk)
            yield chunk
    if size != entry.size:
        raise PackingError(f"{path}: had {entry.size} bytes, and changed while it was read: {size}")
    yield bytes(-entry.size % tarfile.BLOCKSIZE)
