"""Ending whole process trees, whatever their members did to get away."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from . import processes

POLL_S = 0.02


def send(targets: list[processes.Process], number: int) -> None:
    """Send a signal to processes that may be gone by now."""
    for process in targets:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def signal_descendants(number: int) -> None:
    """Send a signal to everything below this process.

    Before a KILL all are stopped, so that none can start another one in the meantime.
    """
    below = processes.descendants({os.getpid()}, processes.everything())
    if number == signal.SIGKILL:
        send(below, signal.SIGSTOP)
        below = processes.descendants({os.getpid()}, processes.everything())
    send(below, number)


def strays(run_id: str, known: dict[str, Any]) -> list[processes.Process]:
    """Living processes of a run whose supervisor is gone.

    Found by BASELOAD_RUN_ID in their environment, by the session of the run's first process (as
    long as that one is the process which `known`, the run's process.json, names), and as the
    descendants of these.
    """
    if known.get("boot_id") != processes.boot_id():
        return []
    everything = [one for one in processes.everything() if one.state not in "ZX"]
    mine = {
        one.pid
        for one in everything
        if one.pid != os.getpid() and (_is_marked(one.pid, run_id) or _is_session_of(one, known))
    }
    family = [one for one in everything if one.pid in mine]
    return family + processes.descendants(mine, everything)


def _is_marked(pid: int, run_id: str) -> bool:
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
    """TERM, and after the grace KILL, whatever is left of a run; whether all of it is gone."""
    found = strays(run_id, known)
    send(found, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + 10
    while found and time.monotonic() < give_up_at:
        if time.monotonic() >= kill_at:
            send(found, signal.SIGKILL)
        time.sleep(POLL_S)
        found = strays(run_id, known)
    return not found
