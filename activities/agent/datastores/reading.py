"""The files of a datastore's folder as one tar stream, of which any byte can be the first.

The stream depends on the names, the sizes and the times of the files alone, so whoever was cut off
asks for the rest of it, from another machine too. What has changed meanwhile is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..errors import RefusedError
from .child import Say, in_child
from .copying import MOST_DEPTH, MOST_FILES, PART, folder_of
from .files import CHUNK_BYTES, FILE, FOLDER, LINK, OTHER, Entry, Files, MissingError, is_name
from .share import Share, share_of
from .verbs import accessible

LIST_S = 1500.0
READ_S = 24 * 3600.0
STALL_S = 600.0
"""How long it may be silent: also whoever takes the stream may be busy for a while."""
END = bytes(2 * tarfile.BLOCKSIZE)


class Listed(NamedTuple):
    """One file of a listing; mtime in whole seconds."""

    path: str
    size: int
    mtime: int

    @property
    def header(self) -> bytes:
        """The headers of the file in a tar."""
        member = tarfile.TarInfo(self.path)
        member.size, member.mode, member.mtime = self.size, 0o644, 0
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class MountedFiles(Files):
    """The files of a mounted share, below an open folder; no link is followed."""

    def __init__(self, top: int) -> None:
        self._top = top

    def look(self, path: str) -> Entry:
        """The entry itself. Raises: MissingError."""
        folder, _, name = path.rpartition("/")
        descriptor = self._open(folder, os.O_DIRECTORY)
        try:
            return _entry(name, os.stat(name, dir_fd=descriptor, follow_symlinks=False))
        except FileNotFoundError:
            raise MissingError("datastore-refused", "%s: no such file" % path) from None
        finally:
            os.close(descriptor)

    def entries(self, path: str) -> Iterator[Entry]:
        """The entries of a folder."""
        descriptor = self._open(path, os.O_DIRECTORY)
        try:
            for name in filter(is_name, os.listdir(descriptor)):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                yield _entry(name, found)
        finally:
            os.close(descriptor)

    def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
        """The content of a file from a byte on."""
        with open(self._open(path, os.O_NONBLOCK), "rb", buffering=0) as file:
            file.seek(begin)
            while True:
                chunk = file.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def _open(self, path: str, more: int) -> int:
        """Open name by name, so that no link on the way is followed. Raises: OSError."""
        descriptor = os.dup(self._top)
        names = path.split("/") if path else []
        for index, name in enumerate(names):
            flags = more if index == len(names) - 1 else os.O_DIRECTORY
            try:
                flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(name, flags, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor


def _entry(name: str, found: os.stat_result) -> Entry:
    kind = OTHER
    for test, each in ((stat.S_ISREG, FILE), (stat.S_ISDIR, FOLDER), (stat.S_ISLNK, LINK)):
        if test(found.st_mode):
            kind = each
    return Entry(name, kind, found.st_size, max(int(found.st_mtime), 0))


def list_datastore(request: dict[str, Any]) -> dict[str, Any]:
    """What a folder of a datastore holds: `identity`, `bytes` of its tar stream, and `files`.

    Raises: RefusedError `datastore-away`, `datastore-refused`, `datastore-path`.
    """
    share, files_of = _asked(request)
    names = share.parts_of(request["path"])

    def act(say: Say) -> dict[str, Any]:
        found = listing(files_of(), names, say)
        return {"identity": identity_of(found), "bytes": tar_bytes(found), "files": len(found)}

    answer: dict[str, Any] = in_child(share.place, act, stall_s=STALL_S, limit_s=LIST_S)
    return answer


def read_datastore(request: dict[str, Any]) -> None:
    """Write the tar stream of a folder to stdout, from the byte `begin` on.

    identity: as `list_datastore` has said it.
    Raises: RefusedError as that; `datastore-moved`, when the files have changed since then.
    """
    share, files_of = _asked(request)
    names = share.parts_of(request["path"])
    begin, identity = int(request["begin"]), request["identity"]

    def act(say: Say) -> None:
        files = files_of()
        found = listing(files, names, say)
        if identity_of(found) != identity:
            raise RefusedError("datastore-moved", "%s: its files have changed" % share.place)
        for chunk in tar_from(files, names, found, begin):
            _write(chunk)
            say("")

    in_child(share.place, act, stall_s=STALL_S, limit_s=READ_S)


def _asked(request: dict[str, Any]) -> tuple[Share, Callable[[], Files]]:
    share = share_of(request["datastore"])
    return share, accessible(share, request, MountedFiles)


def listing(files: Files, names: list[str], say: Say) -> list[Listed]:
    """All files below the folder that the names lead to, by their paths.

    Raises: RefusedError `datastore-path`, also where there is anything else than files and folders.
    """
    top = folder_of(files, names)
    found: list[Listed] = []
    waiting = [("", 0)]
    while waiting:
        path, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise RefusedError("datastore-path", "%s: too many folders in each other" % path)
        for entry in files.entries("/".join(filter(None, (top, path)))):
            inner = "%s/%s" % (path, entry.name) if path else entry.name
            if entry.kind == FOLDER:
                waiting.append((inner, depth + 1))
            elif entry.kind != FILE:
                words = "%s: is a %s: has files and folders alone"
                kind = LINK if entry.kind == LINK else "device or the like"
                raise RefusedError("datastore-path", words % (inner, kind))
            elif not entry.name.startswith(PART):  # What a job has not stored to its end.
                found.append(Listed(inner, entry.size, entry.mtime))
            if len(found) > MOST_FILES:
                raise RefusedError("datastore-path", "more than %d files" % MOST_FILES)
        say("")
    return sorted(found)


def identity_of(found: list[Listed]) -> str:
    """The hash of names, sizes and times."""
    digest = hashlib.sha256()
    for one in found:
        digest.update(os.fsencode("%d %d %s\0" % (one.size, one.mtime, one.path)))
    return digest.hexdigest()


def tar_bytes(found: list[Listed]) -> int:
    """The size of the tar stream."""
    return sum(len(one.header) + one.size + _padding(one.size) for one in found) + len(END)


def tar_from(files: Files, names: list[str], found: list[Listed], begin: int) -> Iterator[bytes]:
    """The tar stream from a byte on; files before it are not opened.

    Raises: RefusedError `datastore-moved`, when a file has another size than was listed.
    """
    at = 0
    for one in found:
        for part in (one.header, None, bytes(_padding(one.size))):
            size = one.size if part is None else len(part)
            first = min(max(begin - at, 0), size)
            at += size
            if first == size:
                continue
            if part is None:
                yield from _whole(files, "/".join([*names, one.path]), one, first)
            else:
                yield part[first:]
    yield END[max(begin - at, 0) :]


def _whole(files: Files, path: str, one: Listed, first: int) -> Iterator[bytes]:
    at = first
    for chunk in files.read(path, first):
        at += len(chunk)
        if at > one.size:
            break
        yield chunk
    if at != one.size:
        words = "%s: has changed: %d bytes, and now %s%d"
        more = "at least " if at > one.size else ""
        raise RefusedError("datastore-moved", words % (one.path, one.size, more, at))


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE


def _write(chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[os.write(1, left) :]
