"""The verbs that transfer bytes: parts of logs, outputs as archives, inputs."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ..errors import RefusedError
from ..federated import terms
from ..folders import Folders, Run
from ..host import file_tree
from . import code_archive, packing
from .removal import unless_removed

CHUNK_BYTES = 1 << 18


def read_log(request: dict[str, Any]) -> None:
    """Write `length` bytes of a run's log, from `offset`, to stdout; fewer if the log is shorter.

    Raises: RefusedError `no-log`.
    """
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
    """Write the run's output folder as tar.gz to stdout.

    Raises: RefusedError `no-folder`; `federated`, for a run whose output goes to a datastore alone.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    terms.keep_out(run, "its output goes to a datastore alone")
    packing.pack(run, ["output"])


def put_input(request: dict[str, Any]) -> None:
    """Unpack the tar that follows on stdin into the run's folder `input`.

    The files replace an earlier input. Before the staging the run has no account yet, so the folder
    is closed to all; afterwards the folder keeps its owner.
    Raises: RefusedError `removed`, and those of `unpack`.
    """
    place_input(request, _receive)


def place_input(request: dict[str, Any], receive: Callable[[BinaryIO], None]) -> None:
    """Unpack the tar that `receive` writes into the run's folder `input`, as `put_input` says."""
    run = Folders(request.get("root", "")).run(request["run_id"])
    with unless_removed(run):
        run.make(request.get("owner"))
        with unpacked(run, request, receive) as folder:
            if run.has("input"):
                before = os.stat(run.at("input"))
                os.chown(folder, before.st_uid, before.st_gid)
                os.chmod(folder, stat.S_IMODE(before.st_mode))
                file_tree.remove(run.at("input"))
            os.rename(folder, run.at("input"))


def _receive(file: BinaryIO) -> None:
    """Write what comes on stdin."""
    with open(0, "rb", buffering=0, closefd=False) as sent:
        shutil.copyfileobj(sent, file, CHUNK_BYTES)


@contextlib.contextmanager
def unpacked(
    run: Run, request: dict[str, Any], receive: Callable[[BinaryIO], None] = _receive
) -> Iterator[str]:
    """A folder with the unpacked tar that `receive` writes, from stdin by default; the
    caller moves the folder, else it is removed."""
    limits = (
        request.get("max_bytes") or code_archive.MAX_UNPACKED_BYTES,
        request.get("max_files") or code_archive.MAX_FILES,
    )
    part = tempfile.mkdtemp(prefix=".part-", dir=run.path)
    try:
        archive = os.path.join(part, "archive")
        with open(archive, "wb") as file:
            receive(file)
        folder = os.path.join(part, "unpacked")
        os.mkdir(folder, 0o700)
        code_archive.unpack(archive, folder, limits)
        yield folder
    finally:
        file_tree.remove(part)


def _write(chunk: bytes) -> None:
    waiting = memoryview(chunk)
    while waiting:
        waiting = waiting[os.write(1, waiting) :]
