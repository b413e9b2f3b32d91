"""Processes as /proc shows them: who is alive, since when, and whose child it is."""

from __future__ import annotations

import os
import time
from typing import Any


class Process:
    """One line of /proc/PID/stat."""

    __slots__ = (
        "cpu_ticks",
        "memory_pages",
        "parent",
        "pid",
        "session",
        "start_ticks",
        "state",
        "threads",
    )

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.cpu_ticks = sum(map(int, fields[11:15]))
        """Its own, and those of its children that have ended."""
        self.threads = int(fields[17])
        self.start_ticks = int(fields[19])
        self.memory_pages = int(fields[21])

    @property
    def has_ended(self) -> bool:
        """Whether it is a zombie; one whose first thread alone has ended still runs."""
        return self.state in "ZX" and self.threads < 2


def find(pid: int) -> Process | None:
    """The process with this number, or None; zombies are found as well (state Z)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return Process(pid, file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def pids() -> list[int]:
    """The numbers of all processes that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def everything() -> list[Process]:
    """Every process that this one can see."""
    return [process for pid in pids() if (process := find(pid)) is not None]


def is_alive(pid: int | None, start_ticks: int | None) -> bool:
    """Whether that very process still runs: a reused number has other start ticks."""
    if not pid:
        return False
    process = find(pid)
    return process is not None and process.start_ticks == start_ticks and not process.has_ended


def descendants(ancestors: set[int], among: list[Process]) -> list[Process]:
    """All children, grandchildren and so on of `ancestors`, without these themselves."""
    by_parent: dict[int, list[Process]] = {}
    for process in among:
        by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    found_pids = set(ancestors)
    waiting = list(ancestors)
    while waiting:
        for child in by_parent.get(waiting.pop(), []):
            if child.pid not in found_pids:
                found_pids.add(child.pid)
                found.append(child)
                waiting.append(child.pid)
    return found


def boot_id() -> str:
    """Changes whenever the machine boots, also for a machine that is a namespace of another."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    first = find(1)
    return "%s-%d" % (boot_id, first.start_ticks if first else 0)


def is_of_this_boot(known: dict[str, Any]) -> bool:
    """Whether something that was noted on this node is of the present boot.

    An agent of an earlier release has noted the boot as `boot_mark`. Without a note it counts as of
    this boot, because what may still run must be looked for.
    """
    noted = known.get("boot_id") or known.get("boot_mark")
    return noted is None or noted == boot_id()


def monotonic_s() -> float:
    """Seconds on a clock that cannot be set, and that continues during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> str:
    """This node's idea of the time, UTC, RFC 3339."""
    # Not by `datetime`, whose import every verb would pay for.
    seconds, microseconds = divmod(time.time_ns() // 1000, 1000000)
    return "%s.%06d+00:00" % (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)),
        microseconds,
    )
