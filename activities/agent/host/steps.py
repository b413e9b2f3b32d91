"""Long commands that install something for a run, with their progress, limits and locks."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from ..errors import RefusedError
from ..folders import take_lock
from . import disk

PROGRESS_S = 5.0
POLL_S = 0.5


def run_step(
    words: str,
    arguments: list[str],
    limit_s: float,
    options: dict[str, Any] | None = None,
    fills: Sequence[str] = (),
) -> tuple[int, str]:
    """Run one long command, and report on stderr every few seconds that it still runs.

    options: further options of Popen.
    fills: the folders that it writes into; when little room is left there, it is killed, so that
    what is installed for one run takes no room from those that execute.
    Returns the exit status and the output; a command that exceeds `limit_s` is killed, status -9.
    Raises: RefusedError `disk-full`.
    """
    deadline = time.monotonic() + limit_s
    said_at = -PROGRESS_S
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **(options or {}),
        )
        full = None
        while True:
            if time.monotonic() - said_at >= PROGRESS_S:
                said_at = time.monotonic()
                sys.stderr.write(words + "\n")
                sys.stderr.flush()
            try:
                process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                full = full or disk.left_by_installing(fills)
                if full or time.monotonic() > deadline:
                    process.kill()
        if full:
            raise RefusedError("disk-full", "%s: %s" % (words, full))
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace")


def sync(folder: str) -> None:
    """Wait until all that was written to the file system of a folder is on its disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)


def lock_with_progress(path: str) -> int:
    """Take a lock, however long that takes, and report every few seconds that it is waited for."""
    said_at = 0.0
    while True:
        lock = take_lock(path, wait=False)
        if lock is not None:
            return lock
        if time.monotonic() - said_at > PROGRESS_S:
            said_at = time.monotonic()
            sys.stderr.write("waiting for another job that installs the same packages\n")
        time.sleep(0.1)
