"""Copies between a share and the folders of a run, where the kernel cannot mount the share.

What a share has is nobody's word: names, links and sizes are checked as those of an archive are. A
copy that was cut off goes on with the files that are missing, and within a file at its byte.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from ..errors import RefusedError
from ..files import packing
from ..folders import Run
from ..host import file_tree
from .child import Say
from .files import CHUNK_BYTES, FILE, FOLDER, LINK, Entry, Files, MissingError, WritableFiles

MOST_FILES = 1_000_000
MOST_DEPTH = 256
MARGIN_BYTES = 1 << 30
"""What a copy leaves free on the disk of the machine."""
PART = ".baseload-part-"
"""What the name of an incomplete file begins with, here and on a share."""
STORED = "stored-on-datastore"
"""The file of a run that names what is stored already, a line for each file."""


def part_name(name: str, size: int, mtime: int) -> str:
    """The name of an incomplete file, which is that of this content alone."""
    digest = hashlib.sha256(os.fsencode("%d %d %s" % (size, mtime, name)))
    return PART + digest.hexdigest()[:32]


class Copied(NamedTuple):
    """What a copy has come to; left_out: entries that are no files, folders or inner links."""

    files: int = 0
    bytes: int = 0
    left_out: int = 0


class Fetching:
    """The copying of one folder of a share into a folder that nobody else can enter.

    Raises: RefusedError `datastore-path`, where the path leads to no folder or over a link;
    `disk-full`; those of `Files`.
    """

    def __init__(self, files: Files, target: str, most_bytes: int, say: Say) -> None:
        self._files = files
        self._target = target
        self._left_bytes = most_bytes
        self._say = say
        self._links: list[tuple[str, str]] = []
        self._count = self._bytes = self._left_out = 0

    def run(self, names: list[str]) -> Copied:
        """Copy the folder that these names lead to. Raises: RefusedError."""
        top = folder_of(self._files, names)
        _remove_links(self._target)  # Of an earlier try: nothing is written through one.
        waiting = [("", 0)]
        while waiting:
            path, depth = waiting.pop()
            if depth > MOST_DEPTH:
                raise RefusedError("datastore-path", "%s: too many folders in each other" % path)
            local = os.path.join(self._target, path)
            if not os.path.isdir(local):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(local)  # The name was that of a file at an earlier try.
                os.mkdir(local, 0o755)
            found = [one for one in self._files.entries(_join(top, path)) if self._is_whole(one)]
            _remove_others(local, found)
            for entry in found:
                inner = _join(path, entry.name)
                if entry.kind == FOLDER:
                    waiting.append((inner, depth + 1))
                else:
                    self._take(_join(top, inner), inner, entry)
        self._make_links()  # Last, so that nothing is written through one.
        return Copied(self._count, self._bytes, self._left_out)

    def _is_whole(self, entry: Entry) -> bool:
        """Whether it is no part of a file that another run is storing, or has given up."""
        if not entry.name.startswith(PART):
            return True
        self._left_out += 1
        return False

    def _make_links(self) -> None:
        """Make the links that lead to what was copied, whatever other links they pass through."""
        made = []
        for path, to in self._links:
            local = os.path.join(self._target, path)
            try:
                os.symlink(to, local)
            except OSError:  # No name or no target for a link of this machine.
                self._left_out += 1
            else:
                made.append(local)
        inside = os.path.realpath(self._target)
        for local in made:
            if os.path.commonpath([inside, os.path.realpath(local)]) != inside:
                os.unlink(local)
                self._left_out += 1

    def _take(self, remote: str, path: str, entry: Entry) -> None:
        self._count += 1
        if self._count > MOST_FILES:
            raise RefusedError("datastore-path", "more than %d files" % MOST_FILES)
        if entry.kind == FILE:
            self._fetch(remote, os.path.join(self._target, path), entry)
            return
        to = self._files.target(remote) if entry.kind == LINK else None
        if to is not None and _stays_inside(path, to):
            self._links.append((path, to))
        else:
            self._left_out += 1

    def _fetch(self, remote: str, local: str, entry: Entry) -> None:
        self._say("copying the input: %d MiB, %d files" % (self._bytes >> 20, self._count))
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(local)
            is_whole = stat.S_ISREG(found.st_mode) and found.st_size == entry.size
            if is_whole and int(found.st_mtime) == entry.mtime:
                self._use(entry.size)
                return
        part = os.path.join(os.path.dirname(local), _part_of(entry))
        with open(part, "ab") as file:
            begin = file.tell()
            if begin > entry.size:
                begin = file.truncate(0)
            self._use(begin)
            for chunk in self._files.read(remote, begin):
                self._use(len(chunk))
                file.write(chunk)
                self._say("copying the input: %d MiB, %d files" % (self._bytes >> 20, self._count))
        os.chmod(part, 0o644 | (entry.mode & 0o111))
        os.utime(part, (entry.mtime, entry.mtime))
        os.rename(part, local)

    def _use(self, count: int) -> None:
        self._bytes += count
        self._left_bytes -= count
        found = os.statvfs(self._target)
        if self._left_bytes < 0:
            words = "the input on the datastore has more bytes than resources.disk_size_gb"
            raise RefusedError("datastore-path", words)
        if found.f_bavail * found.f_frsize < MARGIN_BYTES:
            raise RefusedError("disk-full", "disk of the node: no room for the input's files")


def _part_of(entry: Entry) -> str:
    return part_name(entry.name, entry.size, entry.mtime)


def _remove_others(local: str, entries: list[Entry]) -> None:
    """Remove what an earlier try has copied, and the share has no longer."""
    kept = {name for entry in entries for name in (entry.name, _part_of(entry))}
    for name in os.listdir(local):
        if name not in kept:
            file_tree.remove(os.path.join(local, name))


def _remove_links(folder: str) -> None:
    """Remove all links below a folder, which is entered by real folders alone."""
    for parent, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(parent, name)
            if os.path.islink(path):
                os.unlink(path)


def folder_of(files: Files, names: list[str]) -> str:
    """The path of the folder that the names lead to, none of which may be a link.

    Raises: RefusedError `datastore-path`.
    """
    path = ""
    for name in names:
        path = _join(path, name)
        try:
            kind = files.look(path).kind
        except MissingError as missing:
            raise RefusedError("datastore-path", missing.message) from None
        if kind != FOLDER:
            words = "%s: is a %s; a path on a datastore names a folder, and follows no links"
            raise RefusedError("datastore-path", words % (path, kind))
    return path


def _join(folder: str, name: str) -> str:
    return "%s/%s" % (folder, name) if folder and name else folder or name


def _stays_inside(path: str, to: str) -> bool:
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
    return not to.startswith("/") and there.split("/")[0] != ".."


class Storing:
    """The copying of a run's output folder into a folder of a share.

    Files of the same names are replaced; others stay. Links are left out, because not every share
    can hold them, and names that mean something else to the server.
    takes: which files are stored, by their status; by default all.
    unnoted: called with path and status of each file that is stored, and that a full disk has no
    room to note; by default that is a failure.
    Raises: RefusedError, those of `Files`; `too-deep`; OSError.
    """

    def __init__(
        self,
        files: WritableFiles,
        run: Run,
        note: IO[str],
        say: Say,
        takes: Callable[[os.stat_result], bool] = lambda _: True,
        unnoted: Callable[[str, os.stat_result], object] | None = None,
    ) -> None:
        self._takes = takes
        self._unnoted = unnoted
        self._files = files
        self._run = run
        self._note = note
        self._say = say
        self._count = self._bytes = self._left_out = 0

    def run(self, names: list[str]) -> Copied:
        """Store all of it below the folder that these names lead to, which is made if missing."""
        top = self._make(names)
        stored = self._stored()
        for entry in packing.entries(self._run, "output"):
            found = entry.stat()
            if found is None:
                continue
            if not all(map(self._files.takes, entry.path.split("/"))):
                self._left_out += 1
                continue
            remote = _join(top, entry.path)
            if stat.S_ISDIR(found.st_mode):
                _open_to_us(entry, found)
                self._files.make_folder(remote)
            elif not stat.S_ISREG(found.st_mode):
                self._left_out += 1
            elif self._takes(found):
                mark = mark_of(entry.path, found)
                if mark in stored or self._store(entry, found, remote):
                    if mark not in stored:
                        self._mark(mark, entry.path, found)
                    self._count += 1
                    self._bytes += found.st_size
        return Copied(self._count, self._bytes, self._left_out)

    def _mark(self, mark: str, path: str, found: os.stat_result) -> None:
        """Note what is stored. Raises: OSError."""
        note, line = self._note.fileno(), json.dumps(mark).encode() + b"\n"
        end, full = os.fstat(note).st_size, (errno.ENOSPC, errno.EDQUOT)
        try:
            is_noted = os.write(note, line) == len(line)
        except OSError as error:
            if self._unnoted is None or error.errno not in full:
                raise
            is_noted = False
        if not is_noted:
            os.ftruncate(note, end)  # Else a part of it would spoil the next line.
            if self._unnoted is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._unnoted(path, found)

    def _make(self, names: list[str]) -> str:
        path = ""
        for index, name in enumerate(names):
            path = _join(path, name)
            try:
                self._files.look(path)
            except MissingError:
                self._files.make_folder(path)
            folder_of(self._files, names[: index + 1])
        return path

    def _stored(self) -> set[str]:
        found = set()
        self._note.seek(0)
        for line in self._note:
            with contextlib.suppress(ValueError):
                found.add(json.loads(line))
        return found

    def _store(self, entry: packing.Entry, found: os.stat_result, remote: str) -> bool:
        """Store one file; return whether it could be read."""
        folder, _, name = remote.rpartition("/")
        part = _join(folder, part_name(name, found.st_size, int(found.st_mtime)))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            _open_to_us(entry, found)
            descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self._left_out += 1
            elif error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                raise
            return False
        with open(descriptor, "rb") as file:
            self._files.write(part, self._chunks(file.fileno()))
        self._files.rename(part, remote)
        return True

    def _chunks(self, descriptor: int) -> Iterator[bytes]:
        sent = 0
        while True:
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
            sent += len(chunk)
            total = (self._bytes + sent) >> 20
            self._say("storing the output: %d MiB, %d files" % (total, self._count))


def mark_of(path: str, found: os.stat_result) -> str:
    """What names a file of an output with this content, in the note of what is stored."""
    return "%s %d %d" % (path, found.st_size, found.st_mtime_ns)


def _open_to_us(entry: packing.Entry, found: os.stat_result) -> None:
    """Let ourselves read what the run, whose account is ours, has closed to itself."""
    needed = 0o500 if stat.S_ISDIR(found.st_mode) else 0o400
    if found.st_mode & needed != needed and found.st_uid == os.geteuid() != 0:
        os.chmod(entry.name, stat.S_IMODE(found.st_mode) | needed, dir_fd=entry.folder)
