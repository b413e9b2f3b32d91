"""The resume state of a run: seen cheaply, copied while the command writes it, put back."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from typing import Any

from ..files import packing, transfer
from ..files.removal import unless_removed
from ..folders import Folders, Run, take_lock

MARK_DIGITS = 32


def fingerprint_state(request: dict[str, Any]) -> dict[str, Any]:
    """How much there is, and a mark that changes with any of it; no file is read.

    Raises: RefusedError `no-folder`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    digest = hashlib.sha256()
    files = size = 0
    for entry in packing.entries(run, "state"):
        seen = entry.look()
        if seen is None:
            continue
        is_file = stat.S_ISREG(seen.st_mode)
        files += 1
        size += seen.st_size if is_file else 0
        # A folder's own times change with what lies in it, which is looked at itself.
        times = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) if is_file else ()
        digest.update(repr((entry.path, seen.st_mode, seen.st_ino, times)).encode())
    return {"mark": digest.hexdigest()[:MARK_DIGITS], "bytes": size, "files": files}


def pack_state(request: dict[str, Any]) -> None:
    """Write the run's state folder as tar.gz to stdout, each file as it was at one moment.

    Raises: RefusedError `no-folder`, `unsettled`, `bad-name`; what was written is void then.
    """
    packing.pack(Folders(request.get("root", "")).run(request["run_id"]), "state", settled=True)


def restore_state(request: dict[str, Any]) -> None:
    """Unpack the tar that follows on stdin into the state folder of a run that is not staged yet.

    It replaces what was put there before; what is staged may have written newer state itself, and
    is left alone. Raises: RefusedError `removed`, and those of an archive.
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
        shutil.rmtree(run.at("state"))
    os.chmod(folder, 0o755)  # As staging makes it, which gives it to whose it is.
    os.rename(folder, run.at("state"))
