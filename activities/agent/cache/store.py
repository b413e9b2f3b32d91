"""The store of a region's cache: files named by the hash of their content, with a limit of bytes.

<root>/cache/code/<sha256>    archives of code, as they were uploaded
<root>/cache/files/<sha256>   files of packages
<root>/cache/parts/<name>     parts of contents, named by a key and their hashes

A file is stored only if its content has the requested hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from typing import BinaryIO

from ..errors import RefusedError
from ..folders import SHA256

CODE = "code"
FILES = "files"
PARTS = "parts"
KINDS = (CODE, FILES, PARTS)
CHUNK_BYTES = 1 << 20
PART = ".part-"
PART_KEPT_S = 3600.0
DISK_SHARE = 0.8
"""The most of the whole disk, whatever the limit, because a node with a full disk is unusable."""


class CacheStore:
    """The store below one folder, which evicts the least recently used files first."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        disk = os.statvfs(os.path.dirname(folder))
        self.max_bytes = min(max_bytes, int(disk.f_blocks * disk.f_frsize * DISK_SHARE))

    def make(self) -> None:
        """Make missing folders, and remove the parts of interrupted downloads."""
        for kind in KINDS:
            folder = os.path.join(self.folder, kind)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._drop_interrupted(folder, os.listdir(folder))

    def open(self, kind: str, sha256: str) -> BinaryIO | None:
        """Open the file with that hash, and note its use; None when it is not stored."""
        try:
            file = open(self._path(kind, sha256), "rb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            return None
        os.utime(file.fileno())
        return file

    def has(self, kind: str, name: str) -> bool:
        """Whether the file is stored; it counts as used just now."""
        try:
            os.utime(self._path(kind, name))
        except FileNotFoundError:
            return False
        return True

    def keep(self, kind: str, name: str, chunks: Iterable[bytes], sha256: str | None = None) -> int:
        """Store a file, replacing an earlier one; return its bytes.

        sha256: the hash of its content; None: its name is the hash.
        Raises: RefusedError `hash-mismatch`, `too-large`; OSError; nothing is stored then.
        """
        target = self._path(kind, name)
        descriptor, part = tempfile.mkstemp(prefix=PART, dir=os.path.dirname(target))
        try:
            with os.fdopen(descriptor, "wb") as file:
                found, size = self._write(file, chunks)
            _must_be(sha256 or name, found)
            os.rename(part, target)
        except BaseException:  # Also when interrupted: remove the incomplete file.
            os.unlink(part)
            raise
        self.evict()
        return size

    def _write(self, file: BinaryIO, chunks: Iterable[bytes]) -> tuple[str, int]:
        digest = hashlib.sha256()
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self.max_bytes:
                words = "more than the %d bytes that the whole cache may have" % self.max_bytes
                raise RefusedError("too-large", words)
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())  # Else, after a power cut, the name could belong to half a file.
        return digest.hexdigest(), size

    def size(self) -> int:
        """The bytes of all stored files."""
        return sum(size for _, size, _ in self._kept())

    def evict(self) -> None:
        """Remove the least recently used files until the rest is within the limit.

        Parts of interrupted downloads go as well: what is stored does not count them.
        """
        kept = sorted(self._kept())
        too_much = sum(size for _, size, _ in kept) - self.max_bytes
        for _, size, path in kept:
            if too_much <= 0:
                return
            with contextlib.suppress(FileNotFoundError):  # Another thread was first.
                os.unlink(path)
            too_much -= size

    def _kept(self) -> list[tuple[int, int, str]]:
        """Each file's last use, bytes and path."""
        found = []
        for kind in KINDS:
            folder = os.path.join(self.folder, kind)
            names = os.listdir(folder)
            self._drop_interrupted(folder, names)
            for name in names:
                path = os.path.join(folder, name)
                if SHA256.match(name):
                    with contextlib.suppress(FileNotFoundError):
                        there = os.stat(path)
                        found.append((there.st_mtime_ns, there.st_size, path))
        return found

    def _drop_interrupted(self, folder: str, names: Iterable[str]) -> None:
        """Remove parts that nobody can be writing any more, as a power cut leaves them."""
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if name.startswith(PART) and os.stat(path).st_mtime < _earliest():
                    os.unlink(path)

    def _path(self, kind: str, sha256: str) -> str:
        if not SHA256.match(sha256):
            raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
        return os.path.join(self.folder, kind, sha256)


def chunks_of(file: BinaryIO) -> Iterable[bytes]:
    """The bytes of an open file, from its position to its end."""
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def _must_be(asked: str, found: str) -> None:
    if found != asked:
        raise RefusedError("hash-mismatch", "asked for sha256 %s, found %s" % (asked, found))


def _earliest() -> float:
    return time.time() - PART_KEPT_S
