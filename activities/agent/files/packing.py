"""The packing of a run's folders as tar.gz on stdout.

The command may still run and change the folder meanwhile, even in bad faith. Folders are therefore
walked by their descriptors, so that a link which replaces a folder cannot lead out of it.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from ..errors import RefusedError
from ..folders import Run
from ..host import file_tree

COMPRESSION = 3
FINGERPRINT_DIGITS = 32
MOST_DEPTH = 256
"""The most folders in each other; so many names need no path that is too long to be unpacked."""
_GONE = (errno.ENOENT, errno.ELOOP, errno.ENXIO)
"""The errors of opening a file that is gone or has been replaced by something else."""


def pack(
    run: Run, folders: Sequence[str], settled: bool = False, most_bytes: int | None = None
) -> None:
    """Write folders of the run to stdout.

    folders: of one alone the names are those inside it, else they begin with the folder's.
    settled: refuse a file that changes while it is read; otherwise the file is packed as it is
    read, padded with zeros if it has become shorter.
    most_bytes: the most bytes of all files; None: what the run may use.
    Raises: RefusedError `no-folder`, `too-deep`, `too-large`; with `settled` also `unsettled` and
    `bad-name`.
    """
    found = {folder: entries(run, folder) for folder in folders}
    with contextlib.ExitStack() as opened:
        out = opened.enter_context(open(1, "wb", closefd=False))
        packed = opened.enter_context(gzip.GzipFile("", "wb", COMPRESSION, out, mtime=0))
        tar = opened.enter_context(
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT)
        )
        most = _most_bytes(run) if most_bytes is None else most_bytes
        packer = _Packer(tar, most, settled)
        for folder, inside in found.items():
            packer.begin(run.at(folder), "" if len(found) == 1 else folder)
            for entry in inside:
                packer.add(entry)


def fingerprint(run: Run, folders: Sequence[str]) -> dict[str, Any]:
    """The size of folders of the run, and a fingerprint that changes with any file; none is read.

    Raises: RefusedError `no-folder`, `too-deep`.
    """
    digest = hashlib.sha256()
    files = size = 0
    for folder in folders:
        digest.update(folder.encode())
        for entry in entries(run, folder):
            found = entry.stat()
            if found is None:
                continue
            is_file = stat.S_ISREG(found.st_mode)
            files += 1
            size += found.st_size if is_file else 0
            # A folder's own times change with its content, which has entries of its own.
            times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if is_file else ()
            digest.update(repr((entry.path, found.st_mode, found.st_ino, times)).encode())
    return {"mark": digest.hexdigest()[:FINGERPRINT_DIGITS], "bytes": size, "files": files}


def _most_bytes(run: Run) -> int:
    """The most bytes that a run's files can have, unless they are holes in the main.

    A hole takes nothing on the disk, and is packed as zeros, of which there may be terabytes.
    """
    found = os.statvfs(run.path)
    most = found.f_blocks * found.f_frsize
    allowed_gb = (run.read("spec.json") or {}).get("disk_size_gb")
    return min(most, int(float(allowed_gb) * 1e9)) if allowed_gb else most


class Entry:
    """A file, folder or link: its path from the top, and the open folder that contains it."""

    def __init__(self, path: str, name: str, folder: int) -> None:
        self.path = path
        self.name = name
        self.folder = folder

    def stat(self) -> os.stat_result | None:
        """The entry's current status; None when the entry is gone."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


def entries(run: Run, folder: str) -> Iterator[Entry]:
    """All entries below a folder of the run, in an order that depends on names alone.

    Raises: RefusedError `no-folder`, and `too-deep` on the way.
    """
    top = run.at(folder)
    if not os.path.isdir(top):
        raise RefusedError("no-folder", "run %s: it has no folder %s" % (run.run_id, folder))
    return _entries(top)


def _entries(top: str) -> Iterator[Entry]:
    for folder in file_tree.walk(top):
        if folder.depth > MOST_DEPTH:
            words = "%s: has more than %d folders in each other"
            raise RefusedError("too-deep", words % (os.path.basename(top), MOST_DEPTH))
        folder.folders.sort()
        parent = folder.path()
        for name in sorted(folder.folders + folder.names):
            yield Entry(posixpath.join(parent, name), name, folder.descriptor)


class _Packer:
    def __init__(self, tar: tarfile.TarFile, most_bytes: int, settled: bool) -> None:
        self.tar = tar
        self.settled = settled
        self.left_bytes = most_bytes
        """How many bytes of files may still be packed."""
        self.top = self.prefix = ""
        self.linked: dict[tuple[int, int], str] = {}
        """The first packed name of each file with several names, by device and inode."""

    def begin(self, top: str, prefix: str) -> None:
        """From now on add what is in the folder `top`, with names that begin with `prefix`."""
        self.top, self.prefix, self.linked = top, prefix, {}

    def add(self, entry: Entry) -> None:
        """Add a file, a folder or a link that stays inside; skip devices, sockets and the like.

        Raises: RefusedError `unsettled`, `bad-name`, when the folder has to be settled.
        """
        seen = entry.stat()
        if seen is None:
            return
        if self.settled and "\\" in entry.path:
            raise RefusedError("bad-name", "%r: a name with \\ cannot be restored" % entry.path)
        if stat.S_ISDIR(seen.st_mode):
            self.tar.addfile(self._member(entry, seen, tarfile.DIRTYPE))
        elif stat.S_ISLNK(seen.st_mode):
            self._add_link(entry, seen)
        elif stat.S_ISREG(seen.st_mode):
            self._add_file(entry)

    def _add_link(self, entry: Entry, seen: os.stat_result) -> None:
        try:
            to = os.readlink(entry.name, dir_fd=entry.folder)
        except OSError:
            return
        path = os.path.join(self.top, entry.path)
        inside = os.path.realpath(path).startswith(os.path.realpath(self.top) + os.sep)
        there = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), to))
        if inside and not os.path.isabs(to) and there.split("/")[0] != "..":
            member = self._member(entry, seen, tarfile.SYMTYPE)
            member.linkname = to
            self.tar.addfile(member)

    def _add_file(self, entry: Entry) -> None:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        with open(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if stat.S_ISREG(seen.st_mode):
                self._add_content(entry, seen, file)

    def _add_content(self, entry: Entry, seen: os.stat_result, file: IO[bytes]) -> None:
        known = (seen.st_dev, seen.st_ino)
        if seen.st_nlink > 1 and known in self.linked:
            member = self._member(entry, seen, tarfile.LNKTYPE)
            member.linkname = self.linked[known]
            self.tar.addfile(member)
            return
        self.linked[known] = posixpath.join(self.prefix, entry.path)
        self.left_bytes -= seen.st_size
        if self.left_bytes < 0:
            words = "%s: with its holes, all files have more bytes than the run may use"
            raise RefusedError("too-large", words % entry.path)
        member = self._member(entry, seen, tarfile.REGTYPE)
        member.size = seen.st_size
        self.tar.addfile(member, _Padded(file, member.size))
        if self.settled and _times(os.fstat(file.fileno())) != _times(seen):
            raise RefusedError("unsettled", "%s: changed while it was read" % entry.path)

    def _member(self, entry: Entry, seen: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        """The archive member of an entry, without an owner, which is set at the unpacking."""
        member = tarfile.TarInfo(posixpath.join(self.prefix, entry.path))
        member.type = kind
        member.mode = stat.S_IMODE(seen.st_mode)
        member.mtime = seen.st_mtime  # With its fraction, as tarfile itself does.
        return member


def _times(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_size, seen.st_mtime_ns


class _Padded(io.RawIOBase):
    """A file that may shrink while it is packed; the missing bytes read as zeros."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        found = self.file.read(wanted)
        self.left -= wanted
        return found + bytes(wanted - len(found))
