"""The status of the runs on this node."""

from __future__ import annotations

from typing import Any

from ..folders import REVISION, Folders, Run
from ..host import processes
from . import idleness


def status(request: dict[str, Any]) -> dict[str, Any]:
    """The state of each requested run; of all runs of jobs on this node when it is null."""
    folders = Folders(request.get("root", ""))
    run_ids = request.get("run_ids")
    if run_ids is None:
        run_ids = [one for one in folders.run_ids() if not folders.run(one).has(REVISION)]
    return {
        "runs": {one: state_of(folders.run(one)) for one in run_ids},
        "boot_id": processes.boot_id(),
    }


def state_of(run: Run) -> dict[str, Any]:
    """The state: unknown, staged, running, exited, or lost (started, but without a supervisor).

    elapsed_s of a lost run is that of its last beat, the last measured value.
    """
    supervised = is_supervised(run)  # Read before exit.json, which the supervisor writes last.
    process = run.read("process.json")
    finished = run.read("exit.json")
    state = {
        "state": _name(run, process, finished, supervised),
        "pid": process["pid"] if process else None,
        "started_at": process["started_at"] if process else None,
        "elapsed_s": 0.0,
        "idle_s": 0.0,
        "exit": finished,
        "log_bytes": run.log_bytes(),
    }
    if finished is not None:
        state["elapsed_s"] = finished["elapsed_s"]
        state["log_bytes"] = finished["log_bytes"]
    elif process is not None:
        state["elapsed_s"] = last_beat_s(run)
        state["idle_s"] = idleness.idle_s(run)
    return state


def _name(
    run: Run, process: dict[str, Any] | None, finished: dict[str, Any] | None, supervised: bool
) -> str:
    if finished is not None:
        return "exited"
    if process is not None:
        return "running" if supervised or is_supervised(run) else "lost"
    return "staged" if run.has("spec.json") else "unknown"


def is_supervised(run: Run) -> bool:
    """Whether the supervisor that process.json names is alive."""
    process = run.read("process.json")
    if process is None or not processes.is_of_this_boot(process):
        return False
    return processes.is_alive(process["supervisor_pid"], process["supervisor_start_ticks"])


def last_beat_s(run: Run) -> float:
    """The elapsed seconds of the supervisor's last beat."""
    beat = run.read("beat.json")
    return float(beat["elapsed_s"]) if beat else 0.0
