"""NFS in user space, by libnfs; it speaks NFS 4.0 and 3 with the user and group of its caller."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from ..errors import RefusedError
from .child import AWAY, unreached
from .files import (
    CHUNK_BYTES,
    FILE,
    FOLDER,
    LINK,
    OTHER,
    Entry,
    MissingError,
    WritableFiles,
    is_name,
    library,
)
from .share import Share

PORTMAP = 111
PROBE_S = 3.0
WRITE_BYTES = {3: 1 << 17, 4: 3500}
"""By version, at most: libnfs 4.0 encodes no larger write of NFS 4."""
_FINAL = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR})
_KINDS = {1: FILE, 2: FOLDER, 5: LINK}
_STAT_FIELDS = (
    "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime atime_nsec mtime_nsec "
    "ctime_nsec used"
)


class _Stat(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in _STAT_FIELDS.split()]


class _Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("us", ctypes.c_long)]


class _Dirent(ctypes.Structure):
    pass


_Dirent._fields_ = [
    ("next", POINTER(_Dirent)),
    ("name", c_char_p),
    ("inode", c_uint64),
    ("type", c_uint32),
    ("mode", c_uint32),
    ("size", c_uint64),
    ("atime", _Time),
    ("mtime", _Time),
    ("ctime", _Time),
]
"""The beginning of libnfs's `struct nfsdirent`, which never leaves libnfs."""


class NfsFiles(WritableFiles):
    """The files of an NFS share. Raises: RefusedError, when no version of NFS reaches them."""

    def __init__(self, share: Share, account: tuple[int, int] | None = None) -> None:
        self._share = share
        self._lib = library("libnfs.so.13", "libnfs13")
        self._lib.nfs_init_context.restype = c_void_p
        self._lib.nfs_get_error.restype = c_char_p
        self._lib.nfs_readdir.restype = POINTER(_Dirent)
        said = []
        for self._version in _versions(share):
            self._context = c_void_p(self._lib.nfs_init_context())
            self._settle(account)
            found = self._lib.nfs_mount(
                self._context, share.at.encode(), os.fsencode(share.root_path)
            )
            if found == 0:
                return
            said.append("NFS %d: %s" % (self._version, self._error(found)))
            # The context is left as it is: after a failed mount libnfs may free it once more.
        if -found not in (*_FINAL, errno.ENOENT):
            raise unreached(share.place)
        raise RefusedError("datastore-refused", "%s: %s" % (share.place, "; ".join(said)))

    def _settle(self, account: tuple[int, int] | None) -> None:
        lib = self._lib
        if self._share.port is not None:
            lib.nfs_parse_url_dir.restype = c_void_p
            url = b"nfs://localhost/x?nfsport=%d" % self._share.port
            lib.nfs_parse_url_dir(self._context, url)
        lib.nfs_set_version(self._context, c_int(self._version))
        lib.nfs_set_autoreconnect(self._context, c_int(0))
        uid, gid = account or (os.getuid(), os.getgid())
        lib.nfs_set_uid(self._context, c_int(uid))
        lib.nfs_set_gid(self._context, c_int(gid))

    def look(self, path: str) -> Entry:
        found = _Stat()
        self._call("nfs_lstat64", path, byref(found))
        kind = OTHER
        for test, name in ((stat.S_ISREG, FILE), (stat.S_ISDIR, FOLDER), (stat.S_ISLNK, LINK)):
            if test(found.mode):
                kind = name
        name = path.rpartition("/")[2]
        return Entry(name, kind, found.size, found.mtime, stat.S_IMODE(found.mode))

    def entries(self, path: str) -> Iterator[Entry]:
        folder = c_void_p()
        self._call("nfs_opendir", path, byref(folder))
        try:
            while True:
                found = self._lib.nfs_readdir(self._context, folder)
                if not found:
                    return
                one = found.contents
                name = os.fsdecode(one.name)
                if is_name(name):
                    kind = _KINDS.get(one.type, OTHER)
                    mode = stat.S_IMODE(one.mode)
                    yield Entry(name, kind, one.size, max(one.mtime.s, 0), mode)
        finally:
            self._lib.nfs_closedir(self._context, folder)

    def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
        file = c_void_p()
        self._call("nfs_open", path, c_int(os.O_RDONLY), byref(file))
        try:
            found = self._lib.nfs_lseek(
                self._context, file, c_int64(begin), c_int(os.SEEK_SET), byref(c_uint64())
            )
            self._check(found, path)
            buffer = ctypes.create_string_buffer(CHUNK_BYTES)
            while True:
                count = self._lib.nfs_read(self._context, file, c_uint64(CHUNK_BYTES), buffer)
                self._check(count, path)
                if count == 0:
                    return
                yield buffer.raw[:count]
        finally:
            self._lib.nfs_close(self._context, file)

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        file = c_void_p()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._call("nfs_open2", path, c_int(flags), c_int(0o644), byref(file))
        for chunk in chunks:
            left = memoryview(chunk)
            while left:
                part = bytes(left[: WRITE_BYTES[self._version]])
                count = self._lib.nfs_write(self._context, file, c_uint64(len(part)), part)
                self._check(count, path)
                left = left[count:]
        self._check(self._lib.nfs_fsync(self._context, file), path)
        self._check(self._lib.nfs_close(self._context, file), path)
        if self._version == 4:  # There libnfs 4.0 makes files with a mode of its own.
            self._call("nfs_chmod", path, c_int(0o644))

    def target(self, path: str) -> str | None:
        buffer = ctypes.create_string_buffer(4096)
        self._call("nfs_readlink", path, buffer, c_int(4096))
        return os.fsdecode(buffer.value)

    def make_folder(self, path: str) -> None:
        found = self._lib.nfs_mkdir2(self._context, os.fsencode("/" + path), c_int(0o755))
        if found != -errno.EEXIST:
            self._check(found, path)

    def rename(self, path: str, to: str) -> None:
        self._call("nfs_rename", path, os.fsencode("/" + to))

    def remove(self, path: str) -> None:
        found = self._lib.nfs_unlink(self._context, os.fsencode("/" + path))
        if found != -errno.ENOENT:
            self._check(found, path)

    def _call(self, name: str, path: str, *arguments: Any) -> None:
        found = getattr(self._lib, name)(self._context, os.fsencode("/" + path), *arguments)
        self._check(found, path)

    def _check(self, found: int, path: str) -> None:
        if found >= 0:
            return
        message = "%s: %s: %s" % (self._share.place, path or "/", self._error(found))
        if found == -errno.ENOENT:
            raise MissingError("datastore-refused", message)
        raise RefusedError("datastore-refused" if -found in _FINAL else AWAY, message)

    def _error(self, found: int) -> str:
        said = (self._lib.nfs_get_error(self._context) or b"").decode(errors="replace")
        return "%s (%s)" % (os.strerror(-found), said[:200]) if said else os.strerror(-found)


def _versions(share: Share) -> tuple[int, ...]:
    """The versions to try: 3, which libnfs speaks faster, where the host tells the port of that.

    A port of the datastore is that of NFS 4, which needs no other.
    """
    if share.port is not None:
        return (4,)
    try:
        socket.create_connection((share.at, PORTMAP), PROBE_S).close()
    except OSError:
        return (4,)
    return (3, 4)
