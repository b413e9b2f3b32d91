"""The records of started processes, `run/NAME.json` with pid and start time, and their end.

A pid alone may belong to another process by now; pid and kernel start time together identify one
process. Every program leads a session of its own, so that the processes that it has left are
found and ended with it.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from workers.runner.stack import write_atomically

STACK_VARIABLE = "BASELOAD_STACK"
POLL_S = 0.05


class Record(BaseModel):
    """The record of one started process.

    start_ticks: clock ticks from boot to the process's start (field 22 of /proc/PID/stat).
    """

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    started_at: datetime
    start_ticks: int

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks

    def members(self) -> list[int]:
        """The pids of the live processes in the session of the process."""
        return [
            pid
            for pid, session, ticks in _processes()
            if session == self.pid and ticks >= self.start_ticks
        ]


def write_record(run: Path, name: str, pid: int) -> Record | None:
    """Write the record of a process that was just started; None if it has ended already."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    record = Record(name=name, pid=pid, started_at=datetime.now(UTC), start_ticks=ticks)
    write_atomically(run / f"{name}.json", record.model_dump_json())
    return record


def read_record(run: Path, name: str) -> Record | None:
    """The record of this name; None if there is no record that can be read."""
    try:
        return Record.model_validate_json((run / f"{name}.json").read_bytes())
    except (OSError, ValidationError):
        return None


def forget(run: Path, name: str) -> None:
    (run / f"{name}.json").unlink(missing_ok=True)


def start_ticks(pid: int) -> int | None:
    """The start time of a live process; None if there is no such process, or only a zombie."""
    found = _stat(pid)
    return found[1] if found else None


def orphaned_processes(stack_home: str) -> list[Record]:
    """The live session leaders that were started for this stack, with or without a record.

    stack_home: the value of `STACK_VARIABLE` in their environment.
    """
    entry = f"{STACK_VARIABLE}={stack_home}".encode()
    found = []
    for pid, session, ticks in _processes():
        if pid != session or pid == os.getpid():
            continue
        with suppress(OSError):
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                now = datetime.now(UTC)
                found.append(Record(name="orphan", pid=pid, started_at=now, start_ticks=ticks))
    return found


def end(record: Record, limit_s: float) -> bool:
    """End a process and its session, by SIGTERM, then SIGKILL; whether all of them have ended."""
    if record.alive:
        _signal(record.pid, signal.SIGTERM)
        wait_until(lambda: not record.alive, limit_s)
    for number, wait_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
        for pid in record.members():
            _signal(pid, number)
        if wait_until(lambda: not record.members(), wait_s):
            return True
    return False


def wait_until(condition: Callable[[], bool], limit_s: float, every_s: float = POLL_S) -> bool:
    """Poll until the condition is true; False if it is not true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _stat(pid: int) -> tuple[int, int] | None:
    """(session, start ticks) of a live process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return int(fields[3]), int(fields[19])


def _processes() -> Iterator[tuple[int, int, int]]:
    """(pid, session, start ticks) of every live process that we may see."""
    for folder in os.listdir("/proc"):  # noqa: PTH208 - names only, many of them
        if folder.isdigit() and (found := _stat(int(folder))):
            yield int(folder), *found
