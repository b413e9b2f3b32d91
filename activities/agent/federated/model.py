"""The sealed model of a federated run: as it arrives, and as the run finds it, opened in memory.

receive → (sealed, on the disk) → open_into → (plain, in memory of the run alone) → ended with it

The key is never written, see `key_handover.py`.
"""

from __future__ import annotations

import os
from typing import Any

from ..contents.unpacking import Unpacker
from ..errors import RefusedError
from ..files.removal import unless_removed
from ..folders import Folders, Run
from ..host import disk, run_contents
from .opening import KEY_BYTES, open_model

SEALED = "model.sealed"
PART = "model.sealed.part"
CHUNK_BYTES = 1 << 20
ROOM_BYTES = 1 << 30
MOST_SEALED_BYTES = 1 << 44


def receive_model(request: dict[str, Any]) -> None:
    """Keep the sealed model of a run that follows on stdin; one that is here is not taken again.

    sealed_bytes: how long it is. owner: the control plane that makes the run.
    Raises: RefusedError `removed`, `disk-full`, `sealed-model`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    length = int(request["sealed_bytes"])
    if not 0 < length <= MOST_SEALED_BYTES:
        raise RefusedError("sealed-model", "run %s: no model has %d bytes" % (run.run_id, length))
    with unless_removed(run):
        run.make(request.get("owner"))
        free = disk.free_bytes(run.path)
        if free < length + ROOM_BYTES:
            words = "the sealed model: asked %.1f GB, %.1f GB free"
            raise RefusedError("disk-full", words % (length / 1e9, free / 1e9))
        with open(run.at(PART), "wb") as file:
            os.chmod(run.at(PART), 0o600)
            left = length
            while left > 0:
                chunk = os.read(0, min(CHUNK_BYTES, left))
                if not chunk:
                    words = "run %s: %d bytes of the sealed model did not arrive"
                    raise RefusedError("sealed-model", words % (run.run_id, left))
                file.write(chunk)
                left -= len(chunk)
        os.rename(run.at(PART), run.at(SEALED))


def has_model(request: dict[str, Any]) -> dict[str, Any]:
    """Whether the sealed model of a run is here, whole."""
    run = Folders(request.get("root", "")).run(request["run_id"])
    return {"present": run.has(SEALED)}


def of_run(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The sealed model of a run: `artifact_id`, `name` and `content`; None: it has none."""
    found: dict[str, Any] | None = (spec.get("federated") or {}).get("model")
    return found


def check(run: Run, spec: dict[str, Any], key: str | None) -> None:
    """Check that a run can have its model. Raises: RefusedError `no-content`, `no-model-key`."""
    if of_run(spec) is None:
        return
    if not run.has(SEALED):
        raise RefusedError("no-content", "run %s: its sealed model is not here" % run.run_id)
    if key is None or not _is_key(key):
        raise RefusedError("no-model-key", "run %s: its model has no key" % run.run_id)


def _is_key(key: str) -> bool:
    try:
        return len(bytes.fromhex(key)) == KEY_BYTES
    except ValueError:
        return False


def open_into(run: Run, spec: dict[str, Any], key: bytearray, top: str) -> str:
    """Open the run's model in memory below `top`, and remove the sealed one; its folder.

    Raises: RefusedError `sealed-model`, `no-cipher`; `broken-content` or `unsafe-content`, when it
    is no archive; OSError, such as when it does not fit into memory.
    """
    model = of_run(spec) or {}
    content = model["content"]
    folder = top + run.at(str(run_contents.sealed_place(spec)))
    os.makedirs(folder, 0o755)
    bound_to = "%s/%s/%s" % (spec["federated"]["federated_id"], model["artifact_id"],
                             content["sha256"])  # fmt: skip
    unpacker = Unpacker(folder)
    try:
        with open(run.at(SEALED), "rb", buffering=CHUNK_BYTES) as sealed:
            length = open_model(sealed, bytes(key), bound_to, unpacker.feed)
        unpacker.finish(int(content["file_count"]))
    finally:
        unpacker.close()
    if length != int(content["size_bytes"]):
        words = "the sealed model: asked %d bytes, found %d"
        raise RefusedError("sealed-model", words % (int(content["size_bytes"]), length))
    os.unlink(run.at(SEALED))
    return folder
