"""What a run keeps for its job's next attempt: its fingerprint, its archive, its restoring.

That is the folder `state`, and of a notebook or endpoint the folders `work` and `output` as well.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ..errors import RefusedError
from ..federated import terms
from ..files import packing, transfer
from ..files.removal import unless_removed
from ..folders import Folders, Run, take_lock
from ..host import file_tree

KEPT = ("state", "work", "output")


def fingerprint_state(request: dict[str, Any]) -> dict[str, Any]:
    """The size of what is kept, and a fingerprint that changes with any file; no file is read.

    folders: what is kept; the state alone where they are not named.
    Raises: RefusedError `no-folder`, `bad-folder`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    return packing.fingerprint(run, _folders(request))


def pack_state(request: dict[str, Any]) -> None:
    """Write what is kept as tar.gz to stdout, each file as it was at one moment.

    Raises: RefusedError `no-folder`, `bad-folder`, `unsettled`, `bad-name`; the caller then drops
    the archive; `federated`, for a run whose state may hold its model.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    terms.keep_out(run, "its state stays on the node")
    packing.pack(run, _folders(request), settled=True)


def restore_state(request: dict[str, Any]) -> None:
    """Unpack the tar that follows on stdin into the folders of a run that is not staged yet.

    folders: those that were packed. The files replace those of an earlier restoring. A staged run
    is left alone, because its command may have written newer files.
    Raises: RefusedError `removed`, `bad-folder`, `unsafe-archive`, and those of `unpack`.
    """
    folders = _folders(request)
    run = Folders(request.get("root", "")).run(request["run_id"])
    with unless_removed(run):
        run.make(request.get("owner"))
        with transfer.unpacked(run, request) as folder:
            lock = take_lock(run.at("stage.lock"), wait=True)
            try:
                _put(run, folder, folders)
            finally:
                os.close(lock or 0)


def _folders(request: dict[str, Any]) -> list[str]:
    folders = request.get("folders") or ["state"]
    for name in folders:
        if name not in KEPT:
            words = "folder %r: want one of %s"
            raise RefusedError("bad-folder", words % (name, ", ".join(KEPT)))
    return list(folders)


def _put(run: Run, unpacked: str, folders: list[str]) -> None:
    if run.has("spec.json") or run.has("process.json") or run.has("exit.json"):
        return
    for name in folders:
        found = unpacked if len(folders) == 1 else os.path.join(unpacked, name)
        if not os.path.lexists(found):  # It was empty.
            continue
        if not stat.S_ISDIR(os.lstat(found).st_mode):
            raise RefusedError("unsafe-archive", "%s: is no folder in the archive" % name)
        if run.has(name):
            file_tree.remove(run.at(name))
        os.chmod(found, 0o755)  # As staging makes the folder, before it changes the owner.
        os.rename(found, run.at(name))
