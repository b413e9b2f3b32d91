"""What a region's cache keeps: files named by the hash of what is in them, and only so many bytes.

<root>/cache/code/<sha256>    archives of code, as they were uploaded
<root>/cache/files/<sha256>   files of packages

Nothing is kept whose bytes do not have the hash that it is asked for by.
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
CHUNK_BYTES = 1 << 20
PART = ".part-"
PART_KEPT_S = 3600.0
DISK_SHARE = 0.8
"""Of the whole disk, whatever limit is set: a machine with a full disk is none."""


class CacheStore:
    """The files below one folder, of which those that nobody has asked for longest go first."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        disk = os.statvfs(os.path.dirname(folder))
        self.max_bytes = min(max_bytes, int(disk.f_blocks * disk.f_frsize * DISK_SHARE))

    def make(self) -> None:
        """Make what is missing, and remove what was cut off."""
        for kind in (CODE, FILES):
            folder = os.path.join(self.folder, kind)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if name.startswith(PART) and os.stat(path).st_mtime < _earliest():
                        os.unlink(path)

    def open(self, kind: str, sha256: str) -> BinaryIO | None:
        """What has that hash, from now on the last that goes; None when it is not kept."""
        try:
            file = open(self._path(kind, sha256), "rb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            return None
        os.utime(file.fileno())
        return file

    def keep(self, kind: str, sha256: str, chunks: Iterable[bytes]) -> int:
        """Keep what has that hash, in the place of what was there; how many bytes it has.

        Raises: RefusedError `hash-mismatch`, `too-large`: nothing of it is kept.
        """
        target = self._path(kind, sha256)
        descriptor, part = tempfile.mkstemp(prefix=PART, dir=os.path.dirname(target))
        try:
            with os.fdopen(descriptor, "wb") as file:
                found, size = self._write(file, chunks)
            _must_be(sha256, found)
            os.rename(part, target)
        except BaseException:  # Also when it is interrupted: no half of it stays.
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
        os.fsync(file.fileno())  # After a power cut a name would else stand for half of it.
        return digest.hexdigest(), size

    def size(self) -> int:
        """How many bytes are kept."""
        return sum(size for _, size, _ in self._kept())

    def evict(self) -> None:
        """Remove what was asked for longest ago until the rest is within the limit."""
        kept = sorted(self._kept())
        too_much = sum(size for _, size, _ in kept) - self.max_bytes
        for _, size, path in kept:
            if too_much <= 0:
                return
            with contextlib.suppress(FileNotFoundError):  # Another thread was first.
                os.unlink(path)
            too_much -= size

    def _kept(self) -> list[tuple[int, int, str]]:
        """When each was asked for last, its bytes, its path."""
        found = []
        for kind in (CODE, FILES):
            folder = os.path.join(self.folder, kind)
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if SHA256.match(name):
                    with contextlib.suppress(FileNotFoundError):
                        there = os.stat(path)
                        found.append((there.st_mtime_ns, there.st_size, path))
        return found

    def _path(self, kind: str, sha256: str) -> str:
        if not SHA256.match(sha256):
            raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
        return os.path.join(self.folder, kind, sha256)


def chunks_of(file: BinaryIO) -> Iterable[bytes]:
    """Its bytes, from where it stands to its end."""
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def _must_be(asked: str, found: str) -> None:
    if found != asked:
        raise RefusedError("hash-mismatch", "asked for sha256 %s, found %s" % (asked, found))


def _earliest() -> float:
    return time.time() - PART_KEPT_S
