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


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, with all that it shares."""
    return _of_status(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process has had since its start."""
    return _of_status(pid, "VmHWM")


def all_cpu_s() -> float:
    """CPU seconds that all processes of this machine have used since its boot."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used since its start, of user and system together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _of_status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"process {pid}: found no {name} in its status")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
