"""How much disk a run may still use, and how much it does."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..folders import Run

LEAST_FREE_TO_RUN_BYTES = 32 << 20
LEAST_FREE_TO_STAGE_BYTES = 64 << 20
RESERVED_BYTES = 1 << 20
COUNTED_FILES_AT_MOST = 200_000


def reserve(run: Run) -> None:
    """Keep a little room, so that the end of a run that fills the disk can be written down."""
    with contextlib.suppress(OSError), open(run.at("reserve"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)


def release(run: Run) -> None:
    """Free the reserved room."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(run.at("reserve"))


def free_bytes(path: str) -> int:
    """Free space for unprivileged users on the file system of `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def nearly_full(run: Run) -> str | None:
    """What is wrong when the node's disk is nearly full, else None."""
    free = free_bytes(run.path)
    if free >= LEAST_FREE_TO_RUN_BYTES:
        return None
    return "the node's disk is full: %d MiB free, a run needs %d MiB" % (
        free >> 20,
        LEAST_FREE_TO_RUN_BYTES >> 20,
    )


def overuse(run: Run, spec: dict[str, Any]) -> str | None:
    """What is wrong when the run has written more than its `disk_size_gb`, else None."""
    allowed_gb = spec.get("disk_size_gb")
    if not allowed_gb:
        return None
    used = sum(used_bytes(run.at(name)) for name in ("work", "output", "state")) + run.log_bytes()
    if used <= float(allowed_gb) * 1e9:
        return None
    return "the job has written %.1f GB, its disk_size_gb is %s" % (used / 1e9, allowed_gb)


def used_bytes(path: str) -> int:
    """Bytes allocated below `path`, links not followed; very many files are counted in part."""
    total = count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
            count += 1
        if count > COUNTED_FILES_AT_MOST:
            break
    return total
