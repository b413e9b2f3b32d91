"""Short trials of how fast this machine is, before it is used: some seconds, some megabytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time

MB = 1000 * 1000
DISK_BYTES = 64 * MB
DISK_LIMIT_S = 4.0
CPU_LIMIT_S = 0.3
CHUNK = 1 << 20


def disk_mb_per_s(folder: str) -> int | None:
    """How many megabytes a second a file in the folder takes until they are on the disk; None: it
    takes none."""
    chunk, written = os.urandom(CHUNK), 0
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.monotonic()
            while written < DISK_BYTES and time.monotonic() - began < DISK_LIMIT_S:
                written += file.write(chunk)
                file.flush()
                with contextlib.suppress(OSError):  # Some file systems have no fsync.
                    os.fsync(file.fileno())
            return _rate(written, time.monotonic() - began)
    except OSError:
        return None


def cpu_mb_per_s() -> int:
    """How many megabytes a second one CPU hashes."""
    chunk, hashed, digest = bytes(CHUNK), 0, hashlib.sha256()
    began = time.monotonic()
    while time.monotonic() - began < CPU_LIMIT_S:
        digest.update(chunk)
        hashed += len(chunk)
    return _rate(hashed, time.monotonic() - began)


def _rate(count: int, seconds: float) -> int:
    return int(count / max(seconds, 1e-6) / MB)
