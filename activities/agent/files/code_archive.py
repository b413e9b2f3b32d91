"""Uploaded archives, which are checked as a whole before the first byte is written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import tarfile
import tempfile
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, take_lock
from ..host import file_tree
from ..host.steps import sync
from . import code

MAX_UNPACKED_BYTES = 20 << 30
MAX_FILES = 200_000
MAX_DEPTH = 257
"""One name more than a run's folder is packed with, see `packing.MOST_DEPTH`."""
CHUNK_BYTES = 1 << 20


def has_code(request: dict[str, Any]) -> dict[str, Any]:
    """Whether the upload with this hash is unpacked on this node, where it then stays for a run."""
    folders = Folders(request.get("root", ""))
    return {"present": code.take(folders, request["sha256"]) is not None}


def unpack_code(request: dict[str, Any]) -> dict[str, Any]:
    """Unpack an uploaded archive under its hash; a repeat changes nothing.

    The archive is removed afterwards, also when it is refused, because nothing else reads it.
    Raises: RefusedError `bad-hash`, `no-archive`, `disk-full`, `hash-mismatch`, `broken-archive`,
    `unsafe-archive`, `archive-too-large`.
    """
    folders = Folders(request.get("root", ""))
    folders.make()
    target = folders.code_of(request["sha256"])
    archive = request["archive"]
    lock = take_lock(target + ".lock", wait=True)
    try:
        if os.path.isdir(target):
            os.utime(target)
        else:
            check_hash(archive, request["sha256"])
            limits = (
                request.get("max_bytes") or MAX_UNPACKED_BYTES,
                request.get("max_files") or MAX_FILES,
            )
            _unpack_and_rename(archive, target, limits)
    finally:
        os.close(lock or 0)
        if os.path.isfile(archive):
            os.unlink(archive)
    return {"path": target}


def check_hash(archive: str, sha256: str) -> None:
    """Check the hash of an archive. Raises: RefusedError `no-archive`, `hash-mismatch`."""
    digest = hashlib.sha256()
    try:
        with open(archive, "rb") as file:
            for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
                digest.update(chunk)
    except FileNotFoundError:
        raise RefusedError("no-archive", "%s: no such file on the node" % archive) from None
    if digest.hexdigest() != sha256:
        raise RefusedError(
            "hash-mismatch", "archive: asked for sha256 %s, found %s" % (sha256, digest.hexdigest())
        )


def _unpack_and_rename(archive: str, target: str, limits: tuple[int, int]) -> None:
    part = tempfile.mkdtemp(prefix=".part-", dir=os.path.dirname(target))
    try:
        unpack(archive, part, limits)
        os.chmod(part, 0o755)
        sync(part)  # Else a power cut may leave empty files, which nobody unpacks again.
        os.rename(part, target)
    except BaseException:  # Also when interrupted: remove the incomplete folder.
        file_tree.remove(part)
        raise


def unpack(archive: str, folder: str, limits: tuple[int, int]) -> None:
    """Unpack a tar archive into an empty folder; the caller drops the folder after a refusal.

    limits: most bytes, most members.
    Raises: RefusedError `broken-archive`, `unsafe-archive`, `archive-too-large`, `disk-full`.
    """
    try:
        with tarfile.open(archive, "r:*") as tar:
            _check(tar, limits)
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                _extract(tar, member, folder)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        # OSError covers both the errors of gzip and a full disk.
        code = "disk-full" if getattr(error, "errno", None) == 28 else "broken-archive"
        raise RefusedError(code, "archive: %s" % error) from error
    _check_links(folder)


def _check(tar: tarfile.TarFile, limits: tuple[int, int]) -> None:
    """Read all headers, write nothing."""
    size = 0
    links: set[str] = set()
    for count, member in enumerate(tar, 1):
        size += max(0, member.size)
        if size > limits[0] or count > limits[1]:
            raise RefusedError(
                "archive-too-large", ("archive: unpacks to more than %d bytes or %d files") % limits
            )
        name = _safe_name(member.name)
        if name.count("/") >= MAX_DEPTH:
            words = "archive: more than %d folders in each other" % MAX_DEPTH
            raise RefusedError("unsafe-archive", words)
        _check_kind(member, name)
        parents = _parents(name)
        if links.intersection(parents):
            raise RefusedError("unsafe-archive", "archive: %s lies behind a link" % member.name)
        if member.issym():
            links.add(name)
        elif name in links:
            raise RefusedError("unsafe-archive", "archive: %s replaces a link" % member.name)


def _safe_name(name: str) -> str:
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        raise RefusedError("unsafe-archive", "archive: %r leaves the folder" % name)
    return posixpath.normpath(name)


def _check_kind(member: tarfile.TarInfo, name: str) -> None:
    if member.isreg() or member.isdir():
        return
    if member.islnk():
        _safe_name(member.linkname)
    elif member.issym():
        to = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if member.linkname.startswith("/") or to == ".." or to.startswith("../"):
            raise RefusedError(
                "unsafe-archive",
                "archive: the link %s leaves the folder: %s" % (member.name, member.linkname),
            )
    else:
        raise RefusedError(
            "unsafe-archive", ("archive: %s is neither a file, a folder nor a link") % member.name
        )


def _parents(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:length]) for length in range(1, len(parts))}


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    path = os.path.join(folder, posixpath.normpath(member.name))
    if member.isdir():
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path) and not os.path.isdir(path):
        os.unlink(path)
    if member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        to = posixpath.normpath(member.linkname)
        source = os.path.join(folder, to)
        if os.path.realpath(source) != os.path.join(os.path.realpath(folder), to):
            words = "archive: %s links to a link, or to what lies behind one"
            raise RefusedError("unsafe-archive", words % member.name)
        os.link(source, path)
    else:
        source_file = tar.extractfile(member)
        assert source_file is not None
        with open(path, "xb") as file:
            shutil.copyfileobj(source_file, file, CHUNK_BYTES)
        os.chmod(path, 0o755 if member.mode & 0o100 else 0o644)
        with contextlib.suppress(OverflowError, ValueError):  # It is no time at all.
            os.utime(path, (member.mtime, member.mtime))


def _check_links(folder: str) -> None:
    """Check where links really lead, which their text alone does not show."""
    inside = os.path.realpath(folder)
    for parent, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(parent, name)
            if os.path.islink(path):
                to = os.path.realpath(path)
                if to != inside and not to.startswith(inside + os.sep):
                    words = "archive: the link %s leaves the folder"
                    raise RefusedError("unsafe-archive", words % os.path.relpath(path, folder))
