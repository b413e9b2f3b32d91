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
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from baseload.errors import BaseloadError

IGNORE_FILE = ".baseloadignore"
OUTPUT_MARK = ".baseload-output"
"""A file in each folder that `baseload output` has made; such a folder is no code."""
ALWAYS_IGNORED = (
    ".git", ".hg", ".svn", ".venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".ipynb_checkpoints", "node_modules", ".DS_Store", ".baseload", IGNORE_FILE,
)  # fmt: skip


class PackingError(BaseloadError):
    """A folder does not exist, or has a file that no archive may have."""


@dataclass(frozen=True)
class Packed:
    """The content of an archive: the number of files and their bytes."""

    file_count: int
    content_bytes: int
    outputs: tuple[str, ...] = ()
    """The folders that were left out, because they are fetched outputs."""


@dataclass(frozen=True)
class Ignored:
    """One line of an ignore file.

    A name or a pattern (`*.csv`) matches at any depth; one with a `/` inside or in front matches
    from the folder's root; one that ends in `/` matches folders alone.
    """

    pattern: str
    is_anchored: bool
    folders_only: bool

    @classmethod
    def of(cls, line: str) -> Ignored:
        pattern = line.rstrip("/")
        return cls(pattern.lstrip("/"), "/" in pattern, line.endswith("/"))

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """path: relative to the root, with `/`."""
        if self.folders_only and not is_folder:
            return False
        return fnmatchcase(path if self.is_anchored else path.rsplit("/", 1)[-1], self.pattern)


def ignore_rules(folder: Path) -> tuple[Ignored, ...]:
    """The rules for files that are left out: the fixed ones, and those of the ignore file."""
    lines = list(ALWAYS_IGNORED)
    path = folder / IGNORE_FILE
    if path.is_file():
        lines += [line.strip() for line in path.read_text().splitlines()]
    return tuple(Ignored.of(line) for line in lines if line and not line.startswith("#"))


def pack(folder: Path, target: IO[bytes]) -> Packed:
    """Write the folder's files, sorted, without times and owners, and only with the mode `x`.

    A link to a file inside the folder becomes that file.
    Raises: PackingError, for a link that leaves the folder, and for devices, sockets and pipes.
    """
    if not folder.is_dir():
        raise PackingError(f"code folder {folder}: {_why_no_folder(folder)}")
    count = content_bytes = 0
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        outputs: list[str] = []
        for path, name in _members(folder.resolve(), outputs):
            entry = _entry(path, name)
            if entry.isdir():
                archive.addfile(entry)
                continue
            with path.open("rb") as file:
                archive.addfile(entry, file)
            count, content_bytes = count + 1, content_bytes + entry.size
    return Packed(count, content_bytes, tuple(outputs))


def packed_files(folder: Path) -> frozenset[str]:
    """The names of the files that `pack` packs of a folder. Raises: PackingError, as `pack`."""
    members = _members(folder.resolve(), [])
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


def _members(folder: Path, outputs: list[str]) -> Iterator[tuple[Path, str]]:
    """The files and folders to pack, with their names. outputs: gets those that are left out."""
    rules = ignore_rules(folder)

    def below(current: Path, prefix: str) -> Iterator[tuple[Path, str]]:
        for entry in sorted(os.scandir(current), key=lambda each: each.name):
            name = f"{prefix}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if any(rule.matches(name, is_folder=is_folder) for rule in rules):
                continue
            path = Path(entry.path)
            if is_folder and (path / OUTPUT_MARK).exists():
                outputs.append(name)
                continue
            if entry.is_symlink():
                path = _inside(path, folder)
            yield path, name
            if is_folder:
                yield from below(path, f"{name}/")

    return below(folder, "")


def _inside(link: Path, folder: Path) -> Path:
    target = link.resolve()
    if not target.is_relative_to(folder) or not target.is_file():
        raise PackingError(
            f"code folder {folder}: {link.relative_to(folder)} is a link to "
            f"{link.readlink()}; only links to files inside the folder can be packed "
            f"(name it in {IGNORE_FILE} to leave it out)"
        )
    return target


def _entry(path: Path, name: str) -> tarfile.TarInfo:
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


def _why_no_folder(path: Path) -> str:
    return "is a file, not a folder" if path.exists() else "does not exist"
