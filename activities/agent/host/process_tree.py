"""The end of whole process trees, including members that tried to escape."""

from __future__ import annotations

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


def orphans(run_id: str, known: dict[str, Any]) -> list[processes.Process]:
    """The processes of a run whose supervisor is gone.

    They are found by BASELOAD_RUN_ID in their environment, by the session of the run's first
    process (while that is still the process named in `known`, the run's process.json), and as
    descendants of these.
    """
    if not processes.is_of_this_boot(known):
        return []
    everything = [one for one in processes.everything() if one.state not in "ZX"]
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
