"""The end of whole process trees, including members that tried to escape."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from . import processes

POLL_S = 0.02
KILL_S = 10.0
"""How long to wait for the end of killed processes."""


def send(targets: list[processes.Process], number: int) -> None:
    """Send a signal to processes that may be gone by now."""
    for process in targets:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def signal_descendants(number: int) -> None:
    """Send a signal to all descendants of this process.

    Before a KILL all are stopped, so that none can start another process in the meantime.
    """
    below = processes.descendants({os.getpid()}, processes.everything())
    if number == signal.SIGKILL:
        send(below, signal.SIGSTOP)
        below = processes.descendants({os.getpid()}, processes.everything())
    send(below, number)


def signal_contained(number: int) -> None:
    """Send a signal to the descendants of this process that are in a container, but not to the
    first process of each container, which gets its signals from the container's engine."""
    below = processes.descendants({os.getpid()}, processes.everything())
    for one in below:
        with contextlib.suppress(OSError):  # It has ended by now, or is of another account.
            if not _shares(one.pid, "pid") and not _is_first(one):
                os.kill(one.pid, number)


def _is_first(process: processes.Process) -> bool:
    """Whether the process is the first one of its container."""
    with open("/proc/%d/status" % process.pid) as file:
        numbers = (line.split() for line in file if line.startswith("NSpid:"))
        return next(numbers, ["1"])[-1] == "1"


def orphans(run_id: str, known: dict[str, Any]) -> list[processes.Process]:
    """The processes of a run whose supervisor is gone.

    They are found by BASELOAD_RUN_ID in their environment, by the session of the run's first
    process (while that is still the process named in `known`, the run's process.json), and as
    descendants of these.
    """
    if not processes.is_of_this_boot(known):
        return []
    everything = [one for one in processes.everything() if not one.has_ended]
    mine = {
        one.pid
        for one in everything
        if one.pid != os.getpid() and (_has_run_id(one.pid, run_id) or _is_session_of(one, known))
    }
    family = [one for one in everything if one.pid in mine]
    return family + processes.descendants(mine, everything)


def _has_run_id(pid: int, run_id: str) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False
    return b"BASELOAD_RUN_ID=" + run_id.encode() in variables


def _is_session_of(process: processes.Process, known: dict[str, Any]) -> bool:
    first = known.get("pid")
    if not first or process.session != first:
        return False
    return processes.is_alive(first, known.get("start_ticks"))


def end_orphaned_runs(run_id: str, known: dict[str, Any], grace_s: float) -> bool:
    """TERM and, after `grace_s`, KILL the rest of a run; return whether all of it is gone."""
    found = orphans(run_id, known)
    send(found, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + KILL_S
    while found and time.monotonic() < give_up_at:
        if time.monotonic() >= kill_at:
            send(found, signal.SIGKILL)
        time.sleep(POLL_S)
        found = orphans(run_id, known)
    return not found


def of_account(uid: int) -> list[processes.Process]:
    """The running processes of an account; an uncollected zombie does not count."""
    found = [processes.find(pid) for pid in processes.pids() if _is_of(pid, uid)]
    return [one for one in found if one is not None and not one.has_ended]


def end_account(uid: int, limit_s: float = KILL_S) -> list[int]:
    """KILL all processes of an account, whatever they have forked; return those that stay.

    Processes of containers, which may only share the account's number, are left alone.
    """
    deadline = time.monotonic() + limit_s
    while found := _here(uid):
        if time.monotonic() > deadline:
            return [one.pid for one in found]
        # Stop all first, so that none can start another process in the meantime.
        send(found, signal.SIGSTOP)
        send(_here(uid), signal.SIGKILL)
        time.sleep(POLL_S)
    return []


def _here(uid: int) -> list[processes.Process]:
    found = []
    for one in of_account(uid):
        with contextlib.suppress(OSError):  # It has ended by now.
            if not _is_elsewhere(one.pid):
                found.append(one)
    return found


def _is_of(pid: int, uid: int) -> bool:
    """By the status, because the folder in /proc is root's once a process forbids core dumps."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            ids = next(line.split()[1:] for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):  # It has ended by now.
        return False
    return b"%d" % uid in ids


def _is_elsewhere(pid: int) -> bool:
    """Whether the process is in a namespace that only root can make: an account's own namespace
    also has its own users."""
    return not _shares(pid, "pid") and _shares(pid, "user")


def _shares(pid: int, kind: str) -> bool:
    return os.readlink("/proc/%d/ns/%s" % (pid, kind)) == os.readlink("/proc/self/ns/" + kind)
