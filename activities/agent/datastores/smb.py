"""SMB 3 in user space, by libsmbclient; the password is given to it in memory."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_int64,
    c_long,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any
from urllib.parse import quote

from ..errors import RefusedError
from .child import AWAY, unreached
from .files import (
    CHUNK_BYTES,
    FILE,
    FOLDER,
    LINK,
    Entry,
    MissingError,
    WritableFiles,
    is_name,
    library,
)
from .share import Share, broken_rule

IS_FOLDER, IS_LINK = 0x10, 0x400
TIMEOUT_MS = 20_000
_FINAL = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENODEV,
     errno.EINVAL}
)  # fmt: skip
_AUTHENTICATE = ctypes.CFUNCTYPE(
    None, c_char_p, c_char_p, c_void_p, c_int, c_void_p, c_int, c_void_p, c_int
)


class _Time(ctypes.Structure):
    _fields_ = [("s", c_long), ("ns", c_long)]


class _Info(ctypes.Structure):
    """The `struct libsmb_file_info` of libsmbclient."""

    _fields_ = [
        ("size", c_uint64),
        ("attributes", c_uint16),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("born", _Time),
        ("mtime", _Time),
        ("atime", _Time),
        ("ctime", _Time),
        ("name", c_char_p),
        ("short_name", c_char_p),
    ]


class SmbFiles(WritableFiles):
    """The files of an SMB share. Raises: RefusedError, when the share cannot be listed."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lib = lib = library("libsmbclient.so.0", "libsmbclient")
        lib.smbc_new_context.restype = c_void_p
        lib.smbc_init_context.restype = c_void_p
        lib.smbc_set_context.restype = c_void_p
        lib.smbc_readdirplus.restype = POINTER(_Info)
        lib.smbc_lseek.restype = c_int64
        for name in ("smbc_read", "smbc_write"):
            getattr(lib, name).restype = ctypes.c_ssize_t
        context = c_void_p(lib.smbc_new_context())
        # Kept: the library calls it whenever it connects.
        self._authenticate = _AUTHENTICATE(self._give_credentials)
        lib.smbc_setFunctionAuthData(context, self._authenticate)
        lib.smbc_setTimeout(context, c_int(TIMEOUT_MS))
        lib.smbc_setOptionProtocols(context, b"SMB3", b"SMB3")
        if share.password:
            lib.smbc_setOptionNoAutoAnonymousLogin(context, c_int(1))
        if share.port is not None:
            lib.smbc_setPort(context, c_uint16(share.port))
        if not lib.smbc_init_context(context):
            raise RefusedError("datastore-refused", "libsmbclient: %s" % _words())
        lib.smbc_set_context(context)
        self._has_answered = False
        for _ in self.entries(""):
            break
        self._has_answered = True

    def _give_credentials(self, *given: Any) -> None:
        _, _, domain, domain_size, user, user_size, password, password_size = given
        name = self._share.user or ""
        of, _, name = name.rpartition("\\")
        for at, size, text in (
            (domain, domain_size, of or "WORKGROUP"),
            (user, user_size, name),
            (password, password_size, self._share.password or ""),
        ):
            content = text.encode()[: size - 1] + b"\0"
            ctypes.memmove(at, content, len(content))

    def _url(self, path: str) -> bytes:
        whole = self._share.root_path + ("/" + path if path else "")
        return b"smb://%s%s" % (self._share.at.encode(), quote(os.fsencode(whole)).encode())

    def takes(self, name: str) -> bool:
        """No name with a backslash, which would lead elsewhere, nor what Windows has a use for."""
        return broken_rule(name, is_smb=True) is None

    def look(self, path: str) -> Entry:
        """The entry itself; SMB tells links by an attribute. Raises: MissingError."""
        parent, _, name = path.rpartition("/")
        if not path:
            return Entry("", FOLDER)
        for entry in self.entries(parent):
            if entry.name.casefold() == name.casefold():
                return entry
        raise MissingError("datastore-refused", "%s: %s: no such file" % (self._share.place, path))

    def entries(self, path: str) -> Iterator[Entry]:
        folder = self._lib.smbc_opendir(self._url(path))
        self._check(folder, path)
        try:
            while True:
                ctypes.set_errno(0)
                found = self._lib.smbc_readdirplus(c_int(folder))
                if not found:
                    if ctypes.get_errno():
                        self._check(-1, path)
                    return
                one = found.contents
                name = os.fsdecode(one.name)
                if is_name(name):
                    kind = FOLDER if one.attributes & IS_FOLDER else FILE
                    kind = LINK if one.attributes & IS_LINK else kind
                    yield Entry(name, kind, one.size, max(one.mtime.s, 0))
        finally:
            self._lib.smbc_closedir(c_int(folder))

    def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
        file = self._lib.smbc_open(self._url(path), c_int(os.O_RDONLY), c_int(0))
        self._check(file, path)
        try:
            self._check(self._lib.smbc_lseek(c_int(file), c_int64(begin), c_int(os.SEEK_SET)), path)
            buffer = ctypes.create_string_buffer(CHUNK_BYTES)
            while True:
                count = self._lib.smbc_read(c_int(file), buffer, c_size_t(CHUNK_BYTES))
                self._check(count, path)
                if count == 0:
                    return
                yield buffer.raw[:count]
        finally:
            self._lib.smbc_close(c_int(file))

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        file = self._lib.smbc_open(self._url(path), c_int(flags), c_int(0o644))
        self._check(file, path)
        for chunk in chunks:
            left = chunk
            while left:
                count = self._lib.smbc_write(c_int(file), left, c_size_t(len(left)))
                self._check(count, path)
                left = left[count:]
        self._check(self._lib.smbc_close(c_int(file)), path)

    def make_folder(self, path: str) -> None:
        found = self._lib.smbc_mkdir(self._url(path), c_int(0o755))
        if found < 0 and ctypes.get_errno() != errno.EEXIST:
            self._check(-1, path)

    def rename(self, path: str, to: str) -> None:
        self._check(self._lib.smbc_rename(self._url(path), self._url(to)), path)

    def remove(self, path: str) -> None:
        if self._lib.smbc_unlink(self._url(path)) < 0 and ctypes.get_errno() != errno.ENOENT:
            self._check(-1, path)

    def _check(self, found: int, path: str) -> None:
        if found >= 0:
            return
        number = ctypes.get_errno()
        message = "%s: %s: %s" % (self._share.place, path or "/", _words())
        if number == errno.ENOENT:
            raise MissingError("datastore-refused", message)
        if number not in _FINAL and not self._has_answered:
            raise unreached(self._share.place)
        raise RefusedError("datastore-refused" if number in _FINAL else AWAY, message)


def _words() -> str:
    return os.strerror(ctypes.get_errno())
