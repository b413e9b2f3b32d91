"""The end of a run, which makes sure that no process of the run is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

from ..errors import RefusedError
from ..files import removal
from ..folders import Folders, Run, take_lock
from ..host import containers, disk, job_accounts, launch, process_tree, processes
from . import exits, status, supervisor

POLL_S = 0.02
MARGIN_S = 25.0
PROGRESS_S = 5.0


def end(request: dict[str, Any]) -> dict[str, Any]:
    """End the run; return its state as `status` does, with `tree_gone`.

    grace_s: the time between TERM and KILL; margin_s: the further time for the supervisor, after
    which the supervisor is killed and its process tree is ended from here.
    A run that never started gets an exit.json, so that a late start starts nothing. A removed run
    stays removed, and its state is `unknown`.
    Raises: RefusedError `tree-alive` when a process of the run is still alive.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    margin_s = float(request.get("margin_s") or MARGIN_S)
    end_run(run, float(request.get("grace_s") or 0), margin_s)
    state = status.state_of(run)
    state["tree_gone"] = True
    return state


def end_run(run: Run, grace_s: float, margin_s: float = MARGIN_S) -> None:
    """End the run; silent when the run has ended, or was removed before or meanwhile.

    Raises: RefusedError `tree-alive` when a process of the run is still alive.
    """
    if run.has("exit.json") or removal.was_removed(run):
        return
    try:
        with removal.unless_removed(run):
            run.make()
            _end_run(run, grace_s, margin_s)
    except RefusedError as refused:
        if refused.code != removal.REFUSAL:
            raise


def _end_run(run: Run, grace_s: float, margin_s: float) -> None:
    deadline = time.monotonic() + grace_s + margin_s
    progress_at = time.monotonic() + PROGRESS_S
    asked = 0
    while not run.has("exit.json"):
        lock = take_lock(run.at("lock"), wait=False)
        if lock is not None:
            try:
                _end_unsupervised(run, grace_s)
            finally:
                os.close(lock)
            return
        asked = _ask_supervisor(run, grace_s, asked)
        if time.monotonic() > deadline:
            _kill_supervisor(run)
            deadline += margin_s
        if time.monotonic() > progress_at:
            progress_at += PROGRESS_S
            sys.stderr.write("ending %s\n" % run.run_id)
        time.sleep(POLL_S)


def _ask_supervisor(run: Run, grace_s: float, asked: int) -> int:
    """Ask each supervisor of the run once to end; return the process id of the asked one."""
    process = run.read("process.json")
    if process is None or asked == process["supervisor_pid"]:
        return asked
    if not status.is_supervised(run):
        return asked
    run.write("end.json", {"grace_s": grace_s})
    _signal(process["supervisor_pid"], signal.SIGTERM)
    return int(process["supervisor_pid"])


def _kill_supervisor(run: Run) -> None:
    """Kill a supervisor that does not end its run; its process tree is then ended from here."""
    process = run.read("process.json")
    if process is not None and status.is_supervised(run):
        _signal(process["supervisor_pid"], signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _end_unsupervised(run: Run, grace_s: float) -> None:
    """End the processes of a run without a supervisor, and write its exit; needs the run's lock."""
    if run.has("exit.json"):
        return
    process = run.read("process.json")
    if process is None:
        document = exits.not_run("never-started", "ended before it was started")
        _write(run, document, 0.0, None)
        return
    spec = run.read("spec.json") or {}
    gone = process_tree.end_orphaned_runs(run.run_id, process, grace_s)
    if spec.get("runtime") == "systemd":
        # After the process tree, because the unit's own timeout is longer than `grace_s`.
        subprocess.run(
            ["systemctl", "stop", launch.unit_of(run.run_id)],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    if spec.get("runtime") == "podman":
        gone = containers.remove(run.run_id) and gone
    left = supervisor.end_rest(run, spec)
    if left or not gone:
        left += [one.pid for one in process_tree.orphans(run.run_id, process)]
        _measure(run, process)
        raise RefusedError("tree-alive", "run %s: still alive: %s" % (run.run_id, left))
    job_accounts.forget_ipc(spec.get("user"))
    document = exits.not_run(
        "ended-after-supervisor-loss", "its supervisor was lost; its processes were ended"
    )
    _write(run, document, status.last_beat_s(run), process["started_at"])


def _measure(run: Run, process: dict[str, Any]) -> None:
    """Write the beat of a run that outlives its supervisor: the seconds since its first process.

    The start is the kernel's, on the clock that the supervisor measured with.
    """
    ticks = process.get("start_ticks")
    if not ticks:
        return
    elapsed_s = processes.monotonic_s() - ticks / os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError):  # A full disk: the last beat stays.
        latest_s = max(elapsed_s, status.last_beat_s(run))
        run.write("beat.json", {"elapsed_s": latest_s}, durable=False)


def _write(run: Run, document: dict[str, Any], elapsed_s: float, started_at: str | None) -> None:
    document.update(
        elapsed_s=elapsed_s,
        started_at=started_at,
        finished_at=processes.now(),
        log_bytes=run.log_bytes(),
        tree_gone=True,
    )
    disk.release(run)
    run.forget_variables()
    run.write("exit.json", document)
