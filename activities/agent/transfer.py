"""Bytes in and out: parts of logs, outputs and states as archives, inputs."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import stat
import tarfile
import tempfile
from typing import IO, Any

from . import code_archive
from .errors import RefusedError
from .folders import Folders, Run
from .removal import unless_removed

CHUNK_BYTES = 1 << 18
COMPRESSION = 3


def read_log(request: dict[str, Any]) -> None:
    """Write `length` bytes of a run's log, from `offset`, to stdout; fewer when it ends before."""
    run = Folders(request.get("root", "")).run(request["run_id"])
    try:
        log = os.open(run.log, os.O_RDONLY)
    except FileNotFoundError:
        raise RefusedError("no-log", "run %s: it has no log" % run.run_id) from None
    offset = int(request.get("offset") or 0)
    left = int(request.get("length") or run.log_bytes())
    while left > 0:
        chunk = os.pread(log, min(CHUNK_BYTES, left), offset)
        if not chunk:
            return
        offset += len(chunk)
        left -= len(chunk)
        _write(chunk)


def pack_output(request: dict[str, Any]) -> None:
    """Write the run's output folder as tar.gz to stdout."""
    _pack(Folders(request.get("root", "")).run(request["run_id"]), "output")


def pack_state(request: dict[str, Any]) -> None:
    """Write the run's state folder as tar.gz to stdout."""
    _pack(Folders(request.get("root", "")).run(request["run_id"]), "state")


def put_input(request: dict[str, Any]) -> None:
    """Unpack the tar that follows on stdin into a folder of the run, `input` or `state`.

    It replaces what was put there before. Before the run is staged, whose it will be is not known
    and it is closed to all; afterwards it stays whose the folder was.
    Raises: RefusedError `bad-folder`, `removed`, and those of an archive.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    into = request.get("into") or "input"
    if into not in ("input", "state"):
        raise RefusedError("bad-folder", "folder %r: want input or state" % into)
    limits = (
        request.get("max_bytes") or code_archive.MAX_UNPACKED_BYTES,
        request.get("max_files") or code_archive.MAX_FILES,
    )
    with unless_removed(run):
        run.make(request.get("owner"))
        _put(run, into, limits)


def _put(run: Run, into: str, limits: tuple[int, int]) -> None:
    part = tempfile.mkdtemp(prefix=".part-", dir=run.path)
    try:
        archive = os.path.join(part, "archive")
        with open(archive, "wb") as file, open(0, "rb", buffering=0, closefd=False) as sent:
            shutil.copyfileobj(sent, file, CHUNK_BYTES)
        unpacked = os.path.join(part, "unpacked")
        os.mkdir(unpacked, 0o700)
        code_archive.unpack(archive, unpacked, limits)
        if run.has(into):
            _give_as(unpacked, os.stat(run.at(into)), whole=into == "state")
            shutil.rmtree(run.at(into))
        os.rename(unpacked, run.at(into))
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _give_as(path: str, before: os.stat_result, whole: bool) -> None:
    """Owner and mode as they were; of all that is in it as well where the command may write."""
    if whole:
        for folder, folders, names in os.walk(path):
            for name in folders + names:
                os.lchown(os.path.join(folder, name), before.st_uid, before.st_gid)
    os.chown(path, before.st_uid, before.st_gid)
    os.chmod(path, stat.S_IMODE(before.st_mode))


def _pack(run: Run, folder: str) -> None:
    top = run.at(folder)
    if not os.path.isdir(top):
        raise RefusedError("no-folder", "run %s: it has no folder %s" % (run.run_id, folder))
    with contextlib.ExitStack() as opened:
        out = opened.enter_context(open(1, "wb", closefd=False))
        packed = opened.enter_context(gzip.GzipFile("", "wb", COMPRESSION, out, mtime=0))
        tar = opened.enter_context(
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT)
        )
        for parent, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(folders + names):
                _add(tar, top, os.path.join(parent, name))


def _add(tar: tarfile.TarFile, top: str, path: str) -> None:
    """Files, folders and links that stay inside; devices, sockets and the like are left out."""
    try:
        member = tar.gettarinfo(path, os.path.relpath(path, top))
    except FileNotFoundError:
        return
    if member is None:
        return
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if member.isdir():
        tar.addfile(member)
    elif member.issym():
        inside = os.path.realpath(path).startswith(os.path.realpath(top) + os.sep)
        if inside and not os.path.isabs(member.linkname):
            tar.addfile(member)
    elif member.isreg() or member.islnk():
        _add_file(tar, member, path)


def _add_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    if member.islnk():
        tar.addfile(member)
        return
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        tar.addfile(member, _Padded(file, member.size))


class _Padded(io.RawIOBase):
    """A file that may shrink while it is packed: what is missing reads as zeros."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        found = self.file.read(wanted)
        self.left -= wanted
        return found + bytes(wanted - len(found))


def _write(chunk: bytes) -> None:
    waiting = memoryview(chunk)
    while waiting:
        waiting = waiting[os.write(1, waiting) :]
