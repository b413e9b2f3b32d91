"""The unpacking of a tar stream that arrives in pieces, and that may go on in another process.

Only files, folders and links inside the content are made. After each piece the state says how far
the unpacking has come: in the middle of a file, or of a header. Names are bytes, as the stream has
them. An archive is no larger than its stream, because sparse files are refused.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
import tarfile
from typing import Any, NamedTuple

from ..errors import RefusedError

BLOCK = tarfile.BLOCKSIZE
MOST_HEAD_BYTES = 1 << 20
"""Of the headers of one member together, with its long names."""
MOST_MEMBERS = 2_000_000
MOST_ODD_LINKS = 10_000
MAX_DEPTH = 257
MOST_KNOWN_FOLDERS = 100_000
_LONG = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_CODING = "utf-8", "surrogateescape"


class Unpacker:
    """The unpacker of one stream into a folder.

    state: what `state` was after an earlier piece; the folder may have files of later ones.
    Raises: RefusedError `broken-content`, `unsafe-content`; OSError, when the disk is full.
    """

    def __init__(self, folder: str, state: dict[str, Any] | None = None) -> None:
        self._folder = os.fsencode(folder)
        state = state or {}
        self._rest = str(state.get("rest", "")).encode("latin-1")
        self._padding = int(state.get("padding", 0))
        self._members = int(state.get("members", 0))
        self._files: int | None = state.get("files", 0 if not state else None)
        """How many members are no folders; None: an earlier release has begun, and counted none."""
        self._has_ended = bool(state.get("has_ended"))
        self._odd_links: list[str] = list(state.get("odd_links", []))
        self._globals: dict[str, str] = dict(state.get("globals", {}))
        self._known = {b""}
        self._file: _OpenFile | None = None
        if state.get("file"):
            self._file = _OpenFile.again(self._folder, state["file"])

    @property
    def state(self) -> dict[str, Any]:
        """How far the unpacking is, as a JSON document."""
        return {
            "rest": self._rest.decode("latin-1"),
            "padding": self._padding,
            "members": self._members,
            "files": self._files,
            "has_ended": self._has_ended,
            "odd_links": self._odd_links,
            "globals": self._globals,
            "file": self._file.state if self._file else None,
        }

    def feed(self, piece: memoryview) -> None:
        """Unpack the next piece of the stream."""
        at = 0
        while at < len(piece) and not self._has_ended:
            if self._file is not None:
                at += self._file.write(piece[at:])
                if not self._file.left:
                    self._file.close()
                    self._file = None
            elif self._padding:
                skipped = min(self._padding, len(piece) - at)
                self._padding -= skipped
                at += skipped
            else:
                at += self._take_head(piece[at:])

    def finish(self, file_count: int | None = None) -> None:
        """Check that the stream was whole, and that no link leads out of the folder.

        file_count: how many files and links it must have had; None: any number.
        Raises: RefusedError `broken-content`, `unsafe-content`.
        """
        if self._file is not None or self._padding or self._rest.strip(b"\0"):
            raise RefusedError("broken-content", "content: its archive ends within a file")
        if None not in (file_count, self._files) and file_count != self._files:
            words = "content: its manifest has %s files, its archive %s"
            raise RefusedError("broken-content", words % (file_count, self._files))
        inside = os.path.realpath(self._folder)
        for name in self._odd_links:
            path = os.path.join(self._folder, name.encode(*_CODING))
            to = os.path.realpath(path)
            if to != inside and not to.startswith(inside + b"/"):
                raise RefusedError("unsafe-content", "content: the link %s leaves it" % name)

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()

    def _take_head(self, piece: memoryview) -> int:
        """Read the headers of the next member, and make it; how much of the piece that took.

        A head that the piece cuts is kept until the next one.
        """
        before, head = len(self._rest), piece
        if self._rest:
            head = memoryview(self._rest + bytes(piece[: MOST_HEAD_BYTES + BLOCK - before]))
        at = 0
        extended: dict[str, str] = {}
        while len(head) - at >= BLOCK:
            found = _read_header(bytes(head[at : at + BLOCK]))
            if found is None or found.kind not in _LONG:
                self._rest = b""
                self._make(found, extended)
                return at + BLOCK - before
            end = at + BLOCK + found.size + -found.size % BLOCK
            if end > MOST_HEAD_BYTES:
                raise RefusedError("broken-content", "content: a header of its archive is too long")
            if len(head) < end:
                break
            self._extend(found, bytes(head[at + BLOCK : at + BLOCK + found.size]), extended)
            at = end
        self._rest = bytes(head)
        return len(piece)

    def _extend(self, header: _Header, body: bytes, extended: dict[str, str]) -> None:
        if header.kind == tarfile.GNUTYPE_LONGNAME:
            extended["path"] = body.split(b"\0")[0].decode(*_CODING)
        elif header.kind == tarfile.GNUTYPE_LONGLINK:
            extended["linkpath"] = body.split(b"\0")[0].decode(*_CODING)
        elif header.kind == tarfile.XGLTYPE:
            self._globals.update(_records(body))
        else:
            extended.update(_records(body))

    def _make(self, header: _Header | None, extended: dict[str, str]) -> None:
        """Make one member; None is the end of the archive."""
        if header is None:
            self._has_ended = True
            return
        self._members += 1
        if self._members > MOST_MEMBERS:
            words = "content: its archive has more than %d members" % MOST_MEMBERS
            raise RefusedError("unsafe-content", words)
        if extended or self._globals:
            header = header.extended(dict(self._globals, **extended))
        if self._files is not None and not _is_folder(header):
            self._files += 1
        if header.kind in _FILES:
            self._make_file(header)
            return
        name = _safe_name(header.name)
        path = os.path.join(self._folder, name.encode(*_CODING))
        if header.kind == tarfile.DIRTYPE:
            self._make_folders(name.encode(*_CODING))
        elif header.kind == tarfile.SYMTYPE:
            self._check_link(header.link, name)
            self._clear_for(name, path)
            os.symlink(header.link.encode(*_CODING), path)
        elif header.kind == tarfile.LNKTYPE:
            self._link(header.link, name, path)
        else:
            raise RefusedError(
                "unsafe-content", "content: %s is neither a file, a folder nor a link" % name
            )

    def _make_file(self, header: _Header) -> None:
        """Make a file, whose bytes follow in the stream."""
        name = _safe_name(header.name)
        encoded = name.encode(*_CODING)
        path = os.path.join(self._folder, encoded)
        self._make_folders(os.path.dirname(encoded))
        try:
            opened = _OpenFile(path, name, header)
        except FileExistsError:
            self._clear_for(name, path)
            opened = _OpenFile(path, name, header)
        self._padding = -header.size % BLOCK
        if header.size:
            self._file = opened
        else:
            opened.close()

    def _clear_for(self, name: str, path: bytes) -> None:
        """Make the folders above a member, and remove what an interrupted unpacking has left."""
        if name == ".":
            raise RefusedError("broken-content", "content: its own folder is no folder")
        self._make_folders(os.path.dirname(name.encode(*_CODING)))
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                raise RefusedError("broken-content", "content: %s replaces a folder" % name)
            os.unlink(path)

    def _make_folders(self, name: bytes) -> None:
        """Make a folder and those above; none of them is a link."""
        if name in self._known or name == b".":
            return
        self._make_folders(os.path.dirname(name))
        path = os.path.join(self._folder, name)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                shown = name.decode("utf-8", "replace")
                words = "content: %s is used as a folder, and is none" % shown
                raise RefusedError("unsafe-content", words) from None
        if len(self._known) >= MOST_KNOWN_FOLDERS:
            self._known = {b""}
        self._known.add(name)

    def _check_link(self, link: str, name: str) -> None:
        to = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        if not link or "\0" in link or link.startswith("/") or to.split("/")[0] == "..":
            words = "content: the link %s leaves it: %s" % (name, link)
            raise RefusedError("unsafe-content", words)
        rest = link
        while rest.startswith(("./", "../")):
            rest = rest.partition("/")[2]
        if rest != ".." and ".." in rest.split("/"):
            # It may climb out of what another link leads to; that is seen at the end.
            self._odd_links.append(name)
            if len(self._odd_links) > MOST_ODD_LINKS:
                words = "content: more than %d links climb by `..`" % MOST_ODD_LINKS
                raise RefusedError("unsafe-content", words)

    def _link(self, link: str, name: str, path: bytes) -> None:
        """Make a hard link to a file of the content, never to what lies behind a link."""
        to = _safe_name(link)
        self._make_folders(os.path.dirname(to.encode(*_CODING)))
        source = os.path.join(self._folder, to.encode(*_CODING))
        try:
            is_file = stat.S_ISREG(os.lstat(source).st_mode)
        except FileNotFoundError:
            is_file = False
        if not is_file or to == name:
            words = "content: %s links to %s, which is no file before it" % (name, to)
            raise RefusedError("unsafe-content", words)
        self._clear_for(name, path)
        os.link(source, path)


def _is_folder(header: _Header) -> bool:
    """Whether it is one, as the platform counts them; the oldest archives mark one by its name."""
    is_oldest = header.kind == tarfile.AREGTYPE and header.name.endswith("/")
    return header.kind == tarfile.DIRTYPE or is_oldest


class _OpenFile:
    """A file that is being written."""

    def __init__(self, path: bytes, name: str, header: _Header) -> None:
        self.name, self.left, self.written = name, header.size, 0
        self.mtime = header.mtime if 0 < header.mtime < 1 << 40 else 0.0
        mode = 0o755 if header.mode & 0o100 else 0o644
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    @classmethod
    def again(cls, folder: bytes, state: dict[str, Any]) -> _OpenFile:
        """The file as `state` says; what was written after it is cut off."""
        found = cls.__new__(cls)
        found.name, found.left = state["name"], state["left"]
        found.written, found.mtime = state["written"], state["mtime"]
        path = os.path.join(folder, found.name.encode(*_CODING))
        found.descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        os.ftruncate(found.descriptor, found.written)
        os.lseek(found.descriptor, found.written, os.SEEK_SET)
        return found

    @property
    def state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "left": self.left,
            "written": self.written,
            "mtime": self.mtime,
        }

    def write(self, piece: memoryview) -> int:
        """Write what is of this file; how much that was."""
        count = os.write(self.descriptor, piece[: self.left])
        self.left -= count
        self.written += count
        return count

    def close(self) -> None:
        if not self.left and self.mtime:
            with contextlib.suppress(OSError):  # The file system has no such time.
                os.utime(self.descriptor, (self.mtime, self.mtime))
        os.close(self.descriptor)


class _Header(NamedTuple):
    """What counts of a header."""

    kind: bytes
    name: str
    size: int
    """The bytes that follow: those of a file, or of a long name."""
    mode: int
    mtime: float
    link: str

    def extended(self, found: dict[str, str]) -> _Header:
        """The header with what long headers say in its place. Raises: RefusedError."""
        try:
            size = int(found.get("size", self.size)) if self.kind in _FILES else self.size
            mtime = float(found.get("mtime", self.mtime))
        except ValueError as error:
            raise RefusedError("broken-content", "content: its archive: %s" % error) from error
        if size < 0:
            words = "content: %s has a negative size"
            raise RefusedError("broken-content", words % self.name[:200])
        name, link = found.get("path", self.name), found.get("linkpath", self.link)
        return _Header(self.kind, name, size, self.mode, mtime, link)


def _read_header(block: bytes) -> _Header | None:
    """A header; None: the zeros that end an archive. Raises: RefusedError."""
    found = _read_quickly(block)
    if found is not None:
        return found
    try:
        info = tarfile.TarInfo.frombuf(block, *_CODING)
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None
    except (tarfile.TarError, ValueError) as error:
        raise RefusedError("broken-content", "content: its archive: %s" % error) from error
    if info.size < 0:
        words = "content: %s has a negative size"
        raise RefusedError("broken-content", words % info.name[:200])
    # Some archivers write the size of what is linked, without its bytes.
    size = info.size if info.type in (*_FILES, *_LONG) else 0
    return _Header(info.type, info.name, size, info.mode, float(info.mtime), info.linkname)


def _read_quickly(block: bytes) -> _Header | None:
    """The header of a file with a short name, or of its long headers, as nearly every one is; None:
    anything else, which `tarfile` reads, in five times as long."""
    kind = block[156:157]
    if kind not in b"0xL" or block[345] or not block[0]:
        return None
    try:
        checksum = int(block[148:156].strip(b"\0 "), 8)
        size, mode = int(block[124:136].strip(b"\0 "), 8), int(block[100:108].strip(b"\0 "), 8)
        mtime = int(block[136:148].strip(b"\0 "), 8)
    except ValueError:
        return None
    if checksum != sum(block) - sum(block[148:156]) + 8 * 32 or min(size, mode, mtime) < 0:
        return None
    name = block[:100].partition(b"\0")[0].decode(*_CODING)
    return _Header(kind, name, size, mode, float(mtime), "")


def _records(body: bytes) -> dict[str, str]:
    """The records of a pax header that count: names, a size, a time. Raises: RefusedError."""
    found = {}
    at = 0
    while at < len(body) and body[at : at + 1] != b"\0":
        digits = body[at : at + 20].split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() else 0
        record = body[at + len(digits) + 1 : at + length]
        key, equals, value = record[:-1].partition(b"=")
        if length <= len(digits) + 2 or not equals or record[-1:] != b"\n":
            raise RefusedError("broken-content", "content: its archive has a broken pax header")
        if key.startswith(b"GNU.sparse"):
            raise RefusedError("unsafe-content", "content: its archive has a sparse file")
        if key in (b"path", b"linkpath", b"size", b"mtime"):
            found[key.decode()] = value.decode(*_CODING)
        at += length
    return found


def _safe_name(name: str) -> str:
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name or ".." in parts:
        raise RefusedError("unsafe-content", "content: %r leaves it" % name[:200])
    if len(parts) > MAX_DEPTH:
        words = "content: more than %d folders in each other" % MAX_DEPTH
        raise RefusedError("unsafe-content", words)
    return posixpath.normpath(name)
