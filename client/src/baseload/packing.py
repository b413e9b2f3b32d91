"""Packs a folder of code into a tar.gz; equal files give an equal archive, byte for byte."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import IO

from baseload.errors import BaseloadError
from baseload.ignore_rules import IGNORE_FILE, IgnoreFileError, IgnoreRules

OUTPUT_MARK = ".baseload-output"
"""A file in each folder that `baseload output` has made; such a folder is no code."""
LARGEST = 5
"""How many of the largest files are remembered."""


class PackingError(BaseloadError):
    """A folder does not exist, or has a file that no archive may have."""


@dataclass(frozen=True)
class LeftOut:
    """A file or a folder that was left out; a folder ends in `/`."""

    name: str
    by: str
    """The ignore file that has the rule, `always`, or `output` for the fetched output of a job."""


OUTPUT = "output"


@dataclass(frozen=True)
class Packed:
    """The content of an archive: the number of files and their bytes."""

    file_count: int
    content_bytes: int
    left_out: tuple[LeftOut, ...] = ()
    largest: tuple[tuple[str, int], ...] = ()
    """The largest files with their bytes, the largest first."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The folders that were left out, because they are fetched outputs."""
        return tuple(each.name.rstrip("/") for each in self.left_out if each.by == OUTPUT)


def pack(folder: Path, target: IO[bytes]) -> Packed:
    """Write the folder's files, sorted, without times and owners, and only with the mode `x`.

    A link to a file inside the folder becomes that file.
    Raises: PackingError, for a link that leaves the folder, and for devices, sockets and pipes.
    """
    check_folder(folder)
    sizes: dict[str, int] = {}
    left_out: list[LeftOut] = []
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, name in members_of(folder.resolve(), left_out):
            entry = entry_of(path, name)
            if entry.isdir():
                archive.addfile(entry)
                continue
            with path.open("rb") as file:
                archive.addfile(entry, file)
            sizes[name] = entry.size
    largest = nlargest(LARGEST, sizes.items(), key=itemgetter(1))
    return Packed(len(sizes), sum(sizes.values()), tuple(left_out), tuple(largest))


def packed_files(folder: Path) -> frozenset[str]:
    """The names of the files that `pack` packs of a folder. Raises: PackingError, as `pack`."""
    members = members_of(folder.resolve(), [])
    return frozenset(name for path, name in members if path.is_file())


@dataclass(frozen=True)
class PackedFile:
    """An archive on disk, which is removed when the block ends."""

    path: Path
    packed: Packed

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


@contextmanager
def pack_to_file(folder: Path) -> Iterator[PackedFile]:
    """Pack a folder into a temporary file for the block. Raises: PackingError, see `pack`."""
    with tempfile.NamedTemporaryFile(prefix="baseload-", suffix=".tar.gz") as archive:
        packed = pack(folder, archive.file)
        archive.flush()
        yield PackedFile(Path(archive.name), packed)


def members_of(folder: Path, left_out: list[LeftOut]) -> Iterator[tuple[Path, str]]:
    """The files and folders to pack, with their names. left_out: gets what is left out."""
    try:
        rules = IgnoreRules(folder)
        yield from _below(folder, folder, rules, left_out)
    except IgnoreFileError as cause:
        raise PackingError(str(cause)) from cause


def _below(
    folder: Path, current: Path, rules: IgnoreRules, left_out: list[LeftOut]
) -> Iterator[tuple[Path, str]]:
    prefix = "" if current == folder else f"{current.relative_to(folder).as_posix()}/"
    rules.enter(prefix)
    for entry in sorted(os.scandir(current), key=lambda each: each.name):
        name = f"{prefix}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        path = Path(entry.path)
        by = rules.left_out_by(name, is_folder=is_folder)
        if by is None and is_folder and (path / OUTPUT_MARK).exists():
            by = OUTPUT
        if by is not None:
            left_out.append(LeftOut(f"{name}/" if is_folder else name, by))
            continue
        if entry.is_symlink():
            path = _inside(path, folder)
        yield path, name
        if is_folder:
            yield from _below(folder, path, rules, left_out)


def _inside(link: Path, folder: Path) -> Path:
    target = link.resolve()
    if not target.is_relative_to(folder) or not target.is_file():
        raise PackingError(
            f"code folder {folder}: {link.relative_to(folder)} is a link to "
            f"{link.readlink()}; only links to files inside the folder can be packed "
            f"(name it in {IGNORE_FILE} to leave it out)"
        )
    return target


def entry_of(path: Path, name: str) -> tarfile.TarInfo:
    state = path.stat()
    entry = tarfile.TarInfo(name)
    if stat.S_ISDIR(state.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        return entry
    if not stat.S_ISREG(state.st_mode):
        raise PackingError(f"{path}: neither a file nor a folder; name it in {IGNORE_FILE}")
    entry.size = state.st_size
    entry.mode = 0o755 if state.st_mode & 0o100 else 0o644
    return entry


def check_folder(folder: Path) -> None:
    """Raises: PackingError, when there is no such folder."""
    if not folder.is_dir():
        why = "is a file, not a folder" if folder.exists() else "does not exist"
        raise PackingError(f"code folder {folder}: {why}")
