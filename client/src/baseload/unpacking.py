"""Unpacks archives that others made: checked first, then unpacked only into one folder."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from baseload.errors import BaseloadError


class UnpackingError(BaseloadError):
    """An archive is broken, or would write outside of its folder."""


@dataclass(frozen=True)
class Unpacked:
    """The files that were written; their names are relative to the folder."""

    files: tuple[str, ...]
    left_out: tuple[str, ...]
    """Links that lead out of the folder, devices, pipes."""
    content_bytes: int


@dataclass(frozen=True)
class FetchedFile:
    """A temporary file for an archive, which is removed when the block ends."""

    path: Path
    folder: Path

    def unpack(self) -> Unpacked:
        """Unpack the archive into the folder, see `unpack`."""
        return unpack(self.path, self.folder)


@contextmanager
def unpack_from_file(folder: Path) -> Iterator[FetchedFile]:
    """A temporary file for an archive that is to be unpacked into the folder."""
    with tempfile.TemporaryDirectory(prefix="baseload-") as scratch:
        yield FetchedFile(Path(scratch) / "archive.tar.gz", folder)


def unpack(archive: Path, folder: Path) -> Unpacked:
    """Write the archive's files below the folder, which is created; same names are overwritten.

    Links to paths inside the folder are kept; other links, devices and pipes are left out.
    Raises: UnpackingError, before anything is written, for a broken archive, for names that are
    absolute or have `..`, and for more bytes than the disk has free.
    """
    try:
        with tarfile.open(archive, "r:gz") as opened:
            members = opened.getmembers()
            for member in members:
                _check(member.name)
            folder.mkdir(parents=True, exist_ok=True)
            size = sum(member.size for member in members)
            free = shutil.disk_usage(folder).free
            if size > free:
                raise UnpackingError(f"output needs {size:,} bytes, {folder} has {free:,} free")
            return _Unpacking(opened, folder.resolve()).write(members)
    except (tarfile.TarError, zlib.error, EOFError, KeyError, OSError) as cause:
        raise UnpackingError(f"output cannot be unpacked into {folder}: {cause}") from cause


def _check(text: str) -> None:
    name = PurePosixPath(text)
    if name.is_absolute() or ".." in name.parts or "\0" in text:
        raise UnpackingError(f"output has {text!r}, which leaves its folder: refused")


class _Unpacking:
    """The unpacking of one archive below `root`; links come last, so no file goes through them."""

    def __init__(self, archive: tarfile.TarFile, root: Path) -> None:
        self._archive = archive
        self._root = root
        self._files: list[str] = []
        self._left_out: list[str] = []
        self._bytes = 0

    def write(self, members: list[tarfile.TarInfo]) -> Unpacked:
        links = []
        for member in members:
            if member.isdir():
                self._inside(member.name).mkdir(parents=True, exist_ok=True)
            elif member.isreg() or member.islnk():
                self._write_file(member)
            elif member.issym():
                links.append(member)
            else:
                self._left_out.append(member.name)
        for link in links:
            self._write_link(link)
        return Unpacked(tuple(self._files), tuple(self._left_out), self._bytes)

    def _write_file(self, member: tarfile.TarInfo) -> None:
        path = self._inside(member.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self._archive.extractfile(member)
        if content is None:
            raise UnpackingError(f"output has {member.name!r}, a link to nothing: refused")
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)
            self._bytes += file.tell()
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
        self._files.append(member.name)

    def _write_link(self, member: tarfile.TarInfo) -> None:
        parent = self._inside(member.name).parent
        target = (parent / member.linkname).resolve()
        if PurePosixPath(member.linkname).is_absolute() or not target.is_relative_to(self._root):
            self._left_out.append(member.name)
            return
        parent.mkdir(parents=True, exist_ok=True)
        path = parent / PurePosixPath(member.name).name
        path.unlink(missing_ok=True)
        path.symlink_to(member.linkname)
        self._files.append(member.name)

    def _inside(self, name: str) -> Path:
        """The path of a member; a link that the folder already had must not lead outside."""
        path = self._root / name
        if not path.resolve().is_relative_to(self._root):
            raise UnpackingError(f"{path} leads out of {self._root}: refused")
        return path
