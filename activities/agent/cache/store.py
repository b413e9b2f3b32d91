"""The store of a region's cache: files named by the hash of their content, with a limit of bytes.

<root>/cache/code/<sha256>    archives of code, as they were uploaded
<root>/cache/files/<sha256>   files of packages
<root>/cache/parts/<name>     parts of contents, named by a key and their hashes
<root>/cache/images/<sha256>  manifests and blobs of container images
<root>/cache/full.json        why the last file was refused; absent when it was not

A file is stored only if its content has the requested hash. What was used least goes first. Code
and parts that were used within `PINNED_S` stay whatever comes, because jobs that are being placed
or staged need them: where they leave no room, what comes is refused.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from typing import Any, BinaryIO

from ..errors import RefusedError
from ..folders import SHA256, read_json, write_json
from ..host import disk

CODE = "code"
FILES = "files"
PARTS = "parts"
IMAGES = "images"
KINDS = (CODE, FILES, PARTS, IMAGES)
PINNED = (CODE, PARTS)
PINNED_S = 7200.0
"""As long as the staging of a job may last."""
FULL = "full.json"
CHUNK_BYTES = 1 << 20
PART = ".part-"
PART_KEPT_S = 3600.0
DISK_SHARE = 0.8
"""The most of the whole disk, whatever the limit, because a node with a full disk is unusable."""
LEAST_FREE_BYTES = 256 << 20
"""What stays free on the disk, whatever else is on it."""


class CacheStore:
    """The store below one folder, which evicts the least recently used files first."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = min(max_bytes, int(disk.size_bytes(os.path.dirname(folder)) * DISK_SHARE))

    def make(self) -> None:
        """Make missing folders, and remove the parts of interrupted downloads."""
        for kind in KINDS:
            folder = os.path.join(self.folder, kind)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._drop_interrupted(folder, os.listdir(folder))

    def open(self, kind: str, sha256: str, *, is_use: bool = True) -> BinaryIO | None:
        """Open the file with that hash, and note its use; None when it is not stored."""
        try:
            file = open(self._path(kind, sha256), "rb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            return None
        if is_use:
            os.utime(file.fileno())
        return file

    def has(self, kind: str, name: str) -> bool:
        """Whether the file is stored; it counts as used just now."""
        try:
            os.utime(self._path(kind, name))
        except FileNotFoundError:
            return False
        return True

    def holds(self, kind: str, name: str) -> bool:
        """Whether the file is stored."""
        return os.path.exists(self._path(kind, name))

    def keep(self, kind: str, name: str, chunks: Iterable[bytes], sha256: str | None = None) -> int:
        """Store a file, replacing an earlier one; return its bytes.

        sha256: the hash of its content; None: its name is the hash; empty: it is not known.
        Raises: RefusedError `hash-mismatch`, `too-large`, `cache-full`; OSError; nothing is stored
        then.
        """
        try:
            size = self._keep(kind, name, chunks, sha256)
        except RefusedError as refusal:
            if refusal.code == "cache-full":
                self._note_full(refusal.message)
            raise
        self._note_full(None)
        self.evict()
        return size

    def _keep(self, kind: str, name: str, chunks: Iterable[bytes], sha256: str | None) -> int:
        target = self._path(kind, name)
        descriptor, part = tempfile.mkstemp(prefix=PART, dir=os.path.dirname(target))
        try:
            with os.fdopen(descriptor, "wb") as file:
                found, size = self._write(file, chunks, self._room(target))
            if sha256 != "":
                _must_be(sha256 or name, found)
            os.rename(part, target)
        except BaseException:  # Also when interrupted: remove the incomplete file.
            os.unlink(part)
            raise
        return size

    def _write(self, file: BinaryIO, chunks: Iterable[bytes], room: int) -> tuple[str, int]:
        digest = hashlib.sha256()
        size = 0
        try:
            for chunk in chunks:
                size += len(chunk)
                if size > self.max_bytes:
                    words = "more than the %d bytes that the whole cache may have" % self.max_bytes
                    raise RefusedError("too-large", words)
                if size > room:
                    raise _full(size, "room for %d bytes beside what jobs need now" % room)
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())  # Else, after a power cut, the name could be of half a file.
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise _full(size, str(error)) from error
        return digest.hexdigest(), size

    def _room(self, target: str) -> int:
        """The bytes that a file may have; makes room on a disk that something else has filled."""
        self.evict()
        free = disk.free_bytes(self.folder) - LEAST_FREE_BYTES // 2
        pinned = sum(size for _, size, path in self._kept() if path != target and _is_pinned(path))
        return max(0, min(self.max_bytes - pinned, free))

    def _note_full(self, words: str | None) -> None:
        path = os.path.join(self.folder, FULL)
        with contextlib.suppress(OSError):
            if words is not None:
                write_json(path, {"words": words}, durable=False)
            elif os.path.exists(path):
                os.unlink(path)

    def size(self) -> int:
        """The bytes of all stored files."""
        return sum(size for _, size, _ in self._kept())

    def evict(self) -> None:
        """Remove the least recently used files until the rest is within the limit, and the disk
        has some room; nothing that is pinned.

        Parts of interrupted downloads go as well: what is stored does not count them.
        """
        kept = sorted(self._kept())
        lacking = LEAST_FREE_BYTES - disk.free_bytes(self.folder)
        too_much = max(sum(size for _, size, _ in kept) - self.max_bytes, lacking)
        for _, size, path in kept:
            if too_much <= 0:
                return
            if _is_pinned(path):
                continue
            with contextlib.suppress(FileNotFoundError):  # Another thread was first.
                os.unlink(path)
            too_much -= size

    def _kept(self) -> list[tuple[int, int, str]]:
        """Each file's last use, bytes and path."""
        found = []
        for kind in KINDS:
            folder = os.path.join(self.folder, kind)
            names = list(_names_in(folder))
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

    def listing(self) -> list[list[Any]]:
        """Each file's kind, name, bytes, and seconds since its last use; the last used first."""
        now, found = time.time_ns(), sorted(self._kept(), reverse=True)
        return [
            [*path.split(os.sep)[-2:], size, max(0, now - used_at) / 1e9]
            for used_at, size, path in found
        ]

    def set_used(self, kind: str, name: str, ago_s: float) -> None:
        """Say how long ago a file was used last."""
        at = time.time() - ago_s
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(kind, name), (at, at))

    def _path(self, kind: str, sha256: str) -> str:
        if not SHA256.match(sha256):
            raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
        return os.path.join(self.folder, kind, sha256)


def chunks_of(file: BinaryIO) -> Iterable[bytes]:
    """The bytes of an open file, from its position to its end."""
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def full_reason(folder: str) -> str | None:
    """Why a cache could not keep the last file that it was sent; None: it could."""
    note = read_json(os.path.join(folder, FULL)) or {}
    words = note.get("words")
    return words if isinstance(words, str) else None


def _full(size: int, words: str) -> RefusedError:
    return RefusedError("cache-full", "cache: asked to keep %d bytes or more, %s" % (size, words))


def _is_pinned(path: str) -> bool:
    if os.path.basename(os.path.dirname(path)) not in PINNED:
        return False
    try:
        return os.stat(path).st_mtime > time.time() - PINNED_S
    except FileNotFoundError:
        return False


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # Of a kind that an earlier release has not kept.
        return []


def _must_be(asked: str, found: str) -> None:
    if found != asked:
        raise RefusedError("hash-mismatch", "asked for sha256 %s, found %s" % (asked, found))


def _earliest() -> float:
    return time.time() - PART_KEPT_S
