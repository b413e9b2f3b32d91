"""Archives from elsewhere: looked through first, then unpacked into one folder and nowhere else."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from baseload.errors import BaseloadError


class UnpackingError(BaseloadError):
    """The archive is broken, or would write outside of its folder; nothing was written."""


@dataclass(frozen=True)
class Unpacked:
    """What was written; `files` are relative to the folder."""

    files: tuple[str, ...]
    content_bytes: int


@dataclass(frozen=True)
class FetchedFile:
    """A file to fetch an archive into, there until the block ends."""

    path: Path
    folder: Path

    def unpack(self) -> Unpacked:
        """See `unpack`."""
        return unpack(self.path, self.folder)


@contextmanager
def unpack_from_file(folder: Path) -> Iterator[FetchedFile]:
    """A place for an archive that is to be unpacked into the folder."""
    with tempfile.TemporaryDirectory(prefix="baseload-") as scratch:
        yield FetchedFile(Path(scratch) / "archive.tar.gz", folder)


def unpack(archive: Path, folder: Path) -> Unpacked:
    """Write the archive's files below the folder, which is made; same names are overwritten.

    Raises: UnpackingError, before anything is written, for what is broken, for names that are
    absolute or have `..`, for links and devices, and for more than the disk has room for.
    """
    try:
        with tarfile.open(archive, "r:gz") as opened:
            members = opened.getmembers()
            _check(members)
            folder.mkdir(parents=True, exist_ok=True)
            size = sum(member.size for member in members)
            free = shutil.disk_usage(folder).free
            if size > free:
                raise UnpackingError(f"output needs {size:,} bytes, {folder} has {free:,} free")
            return _write(opened, members, folder)
    except (tarfile.TarError, EOFError, OSError) as cause:
        raise UnpackingError(f"output cannot be unpacked into {folder}: {cause}") from cause


def _check(members: list[tarfile.TarInfo]) -> None:
    for member in members:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or "\0" in member.name:
            raise UnpackingError(f"output has {member.name!r}, which leaves its folder: refused")
        if not (member.isreg() or member.isdir()):
            raise UnpackingError(f"output has {member.name!r}, a link or a device: refused")


def _write(archive: tarfile.TarFile, members: list[tarfile.TarInfo], folder: Path) -> Unpacked:
    root = folder.resolve()
    files, written = [], 0
    for member in members:
        path = root / member.name
        # A link that lay in the folder before must not lead us out of it.
        if not path.resolve().is_relative_to(root):
            raise UnpackingError(f"{path} leads out of {folder}: refused")
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None, "regular files alone are left"  # noqa: S101
        with content, path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(0o755 if member.mode & 0o100 else 0o644)
        files.append(member.name)
        written += member.size
    return Unpacked(tuple(files), written)
