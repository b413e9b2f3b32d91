"""Copies between a share and the folders of a run, where the kernel cannot mount the share.

What a share has is nobody's word: names, links and sizes are checked as those of an archive are. A
copy that was cut off goes on with the files that are missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import RefusedError
from ..files import packing
from ..folders import Run
from .child import Say
from .files import CHUNK_BYTES, FILE, FOLDER, LINK, Entry, Files, MissingError

MOST_FILES = 1_000_000
MOST_DEPTH = 256
MARGIN_BYTES = 1 << 30
"""What a copy leaves free on the disk of the machine."""
PART = ".baseload-part-"
STORED = "stored-on-datastore"
"""The file of a run that names what is stored already, a line for each file."""


class Copied(NamedTuple):
    """What a copy has come to; left_out: entries that are no files, folders or inner links."""

    files: int = 0
    bytes: int = 0
    left_out: int = 0


class Fetching:
    """The copying of one folder of a share into an empty folder that only root can enter.

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
            for entry in list(self._files.entries(_join(top, path))):
                inner = _join(path, entry.name)
                if entry.kind == FOLDER:
                    waiting.append((inner, depth + 1))
                else:
                    self._take(_join(top, inner), inner, entry)
        self._make_links()  # Last, so that nothing is written through one.
        return Copied(self._count, self._bytes, self._left_out)

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
        part = os.path.join(os.path.dirname(local), PART + os.path.basename(local)[:200])
        with open(part, "wb") as file:
            for chunk in self._files.read(remote):
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
    Raises: RefusedError, those of `Files`; `too-deep`.
    """

    def __init__(self, files: Files, run: Run, say: Say) -> None:
        self._files = files
        self._run = run
        self._say = say
        self._count = self._bytes = self._left_out = 0

    def run(self, names: list[str]) -> Copied:
        """Store all of it below the folder that these names lead to, which is made if missing."""
        top = self._make(names)
        stored = self._stored()
        with open(self._run.at(STORED), "a") as note:
            for entry in packing.entries(self._run, "output"):
                found = entry.stat()
                if found is None:
                    continue
                if not all(map(self._files.takes, entry.path.split("/"))):
                    self._left_out += 1
                    continue
                remote = _join(top, entry.path)
                if stat.S_ISDIR(found.st_mode):
                    self._files.make_folder(remote)
                elif not stat.S_ISREG(found.st_mode):
                    self._left_out += 1
                else:
                    mark = "%s %d %d" % (entry.path, found.st_size, found.st_mtime_ns)
                    if mark not in stored:
                        self._store(entry, remote)
                        note.write(json.dumps(mark) + "\n")
                        note.flush()
                    self._count += 1
                    self._bytes += found.st_size
        return Copied(self._count, self._bytes, self._left_out)

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
        with contextlib.suppress(FileNotFoundError), open(self._run.at(STORED)) as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    found.add(json.loads(line))
        return found

    def _store(self, entry: packing.Entry, remote: str) -> None:
        folder, _, name = remote.rpartition("/")
        part = _join(folder, PART + name[:200])
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                return
            raise
        with open(descriptor, "rb") as file:
            self._files.write(part, self._chunks(file.fileno()))
        self._files.rename(part, remote)

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
