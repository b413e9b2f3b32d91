"""What it is measured on, and what processes take of it."""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def heading() -> str:
    """The machine's size and the versions that count."""
    memory_gib = _PAGE_BYTES * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{len(os.sched_getaffinity(0))} cores ({_processor()}), {memory_gib:.0f} GiB of memory, "
        f"Python {platform.python_version()}; database and Temporal dev server on SQLite; "
        f"load before: {os.getloadavg()[0]:.1f}"
    )


@dataclass(frozen=True, slots=True)
class Share:
    """What processes took of the machine over a while."""

    cores: float
    """CPU seconds per second."""
    memory_bytes: int
    """At the end; see `memory_bytes`."""

    def __str__(self) -> str:
        return f"{self.cores:.0%} of a core, {self.memory_bytes / MIB:,.0f} MiB"


def share_of(pids: Sequence[int], seconds: float) -> Share:
    """Look at processes for so long."""
    before = sum(cpu_s(pid) for pid in pids)
    started = time.monotonic()
    time.sleep(seconds)
    used_s = sum(cpu_s(pid) for pid in pids) - before
    return Share(used_s / (time.monotonic() - started), sum(memory_bytes(pid) for pid in pids))


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, of what it shares with others only its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"process {pid}: found no Pss in its smaps_rollup")


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used since its start, of user and system together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
