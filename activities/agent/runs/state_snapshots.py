"""The resume state of a run: its fingerprint, its archive while the command runs, its restoring."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any

from ..files import packing, transfer
from ..files.removal import unless_removed
from ..folders import Folders, Run, take_lock
from ..host import file_tree

FINGERPRINT_DIGITS = 32


def fingerprint_state(request: dict[str, Any]) -> dict[str, Any]:
    """The size of the state, and a fingerprint that changes with any file; no file is read.

    Raises: RefusedError `no-folder`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    digest = hashlib.sha256()
    files = size = 0
    for entry in packing.entries(run, "state"):
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


def pack_state(request: dict[str, Any]) -> None:
    """Write the run's state folder as tar.gz to stdout, each file as it was at one moment.

    Raises: RefusedError `no-folder`, `unsettled`, `bad-name`; the caller then drops the archive.
    """
    packing.pack(Folders(request.get("root", "")).run(request["run_id"]), "state", settled=True)


def restore_state(request: dict[str, Any]) -> None:
    """Unpack the tar that follows on stdin into the state folder of a run that is not staged yet.

    The files replace those of an earlier restoring. A staged run is left alone, because its command
    may have written newer state. Raises: RefusedError `removed`, and those of `unpack`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    with unless_removed(run):
        run.make(request.get("owner"))
        with transfer.unpacked(run, request) as folder:
            lock = take_lock(run.at("stage.lock"), wait=True)
            try:
                _put(run, folder)
            finally:
                os.close(lock or 0)


def _put(run: Run, folder: str) -> None:
    if run.has("spec.json") or run.has("process.json") or run.has("exit.json"):
        return
    if run.has("state"):
        file_tree.remove(run.at("state"))
    os.chmod(folder, 0o755)  # As staging makes the folder, before it changes the owner.
    os.rename(folder, run.at("state"))
