"""The processes of this host by Linux's lists: which one is meant, what it has left, and their end.

A pid alone may belong to another process by now. A pid and the start time of its process together
identify one process.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
POLL_S = 0.05


class Process(NamedTuple):
    """A live process: its pid, its parent's, and its start in clock ticks from boot."""

    pid: int
    parent: int
    start_ticks: int


def process_of(pid: int) -> Process | None:
    """The live process with a pid; None if there is none, or only a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[1]), int(fields[19]))


def is_alive(pid: int, start_ticks: int) -> bool:
    found = process_of(pid)
    return found is not None and found.start_ticks == start_ticks


def send_signal(pid: int, start_ticks: int, number: signal.Signals) -> None:
    """Send a signal to one process, and to no other one that has its pid by now."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_alive(pid, start_ticks):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def descendants_of(roots: Iterable[int]) -> list[Process]:
    """The live processes that these have begun, and those that they have begun in turn."""
    children: dict[int, list[Process]] = {}
    for each in _processes():
        children.setdefault(each.parent, []).append(each)
    found: list[Process] = []
    left = list(roots)
    while left:
        begun = children.pop(left.pop(), [])
        found += begun
        left += [each.pid for each in begun]
    return found


def carriers_of(entry: str) -> list[Process]:
    """The live processes with `NAME=VALUE` in the environment with which they were begun."""
    wanted = entry.encode()
    found = []
    for each in _processes():
        with suppress(OSError):
            if wanted in (PROC / str(each.pid) / "environ").read_bytes().split(b"\0"):
                found.append(each)
    return found


def kill_all(processes: Iterable[Process]) -> None:
    for each in processes:
        with suppress(PermissionError):
            send_signal(each.pid, each.start_ticks, signal.SIGKILL)


def end_descendants(pid: int, limit_s: float) -> None:
    """End whatever a process has begun, by SIGTERM, and by SIGKILL what is left after the limit."""
    for each in descendants_of([pid]):
        with suppress(PermissionError):
            send_signal(each.pid, each.start_ticks, signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    while descendants_of([pid]) and time.monotonic() < deadline:
        reap()
        time.sleep(POLL_S)
    while left := descendants_of([pid]):
        kill_all(left)
        reap()
        time.sleep(POLL_S)


def reap() -> None:
    """Take the exit statuses of the children of this process that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _processes() -> Iterator[Process]:
    for folder in os.listdir(PROC):  # noqa: PTH208 - names only, many of them
        if folder.isdigit() and (found := process_of(int(folder))) is not None:
            yield found
