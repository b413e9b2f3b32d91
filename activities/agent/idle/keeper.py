"""The keeper of the idle workload: starts it while no run is on the machine, and counts its work.

It is one process for each root. It decides nothing that runs depend on: they end the workload
themselves (`workload.give_way`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from typing import Any

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, Run, read_json, take_lock, write_json
from ..host import inspection, network_wall, nvidia_gpus
from ..host.launch import archive
from ..runs import clean, stage, start, status
from . import lease, workload

POLL_S = 1.0
IDLE_AFTER_S = 30.0
"""How long no run has been on the machine before the workload starts: a job may start again."""
FIRST_PAUSE_S = 10.0
MOST_PAUSE_S = 600.0
MEASURE_S = 10.0
MOST_GAP_S = 30.0
"""The longest time between two measurements for which the power of the later one counts."""
DRIVER_S = 5.0
MOST_REASON = 500


def launch(folders: Folders) -> None:
    """Start the keeper, unless it runs, no workload is switched on, or its lease has ended."""
    if workload.wanted(folders) is None or workload.is_kept(folders):
        return
    command = [sys.executable, "-I", "-S", archive(), "keep_idle_workload", folders.root]
    if "systemd" in inspection.runtimes():
        mark = hashlib.sha256(folders.root.encode()).hexdigest()[:8]
        unit = "--unit=baseload-idle-%s.service" % mark
        plain = ["systemd-run", "--quiet", "--collect", "--property=KillMode=process", unit]
        subprocess.run(plain + command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return
    with open(os.path.join(workload.root_of(folders).root, "keeper.log"), "wb") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )


def keep(root: str) -> None:
    """Keep the workload until it is switched off or its lease ends.

    Silent when another keeper does that.
    """
    folders = Folders(root)
    own = workload.root_of(folders)
    lock = take_lock(os.path.join(own.root, workload.LOCK), wait=False)
    if lock is None:
        return
    lease.note_restart(own)
    keeper = Keeper(folders)
    while (wanted := workload.wanted(folders)) is not None:
        try:
            keeper.look(wanted)
        except (RefusedError, OSError) as error:
            keeper.fail(str(error))
        time.sleep(min(POLL_S, keeper.idle_after_s(wanted)))
    keeper.give_up()


def count_ended(folders: Folders) -> None:
    """Add the seconds of the workloads that have ended to the figures, and remove their folders."""
    own = workload.root_of(folders)
    for run_id in own.run_ids():
        run = own.run(run_id)
        document = run.read("exit.json")
        figures = read_figures(folders)
        if document is None:
            continue
        if figures.get("counted") != run_id:
            figures["run_s"] = figures.get("run_s", 0.0) + float(document["elapsed_s"])
            figures["counted"] = run_id  # A repeat after a crash counts it once.
            write_figures(folders, figures)
        clean.clean({"root": own.root, "run_ids": [run_id]})


def read_figures(folders: Folders) -> dict[str, Any]:
    """What the workloads of this machine have done so far."""
    path = os.path.join(workload.root_of(folders).root, workload.FIGURES)
    return read_json(path) or {}


def write_figures(folders: Folders, figures: dict[str, Any]) -> None:
    """Replace the figures."""
    path = os.path.join(workload.root_of(folders).root, workload.FIGURES)
    write_json(path, figures)


class Keeper:
    """The keeper of one root."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.own = workload.root_of(folders)
        self.busy_s = time.monotonic()
        """When a run was on the machine last, or the keeper began to look."""
        self.start_at_s = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.measured_s = 0.0
        self.started_s = 0.0

    def idle_after_s(self, wanted: dict[str, Any]) -> float:
        """How long the machine must be idle before the workload starts."""
        return float(wanted.get("idle_after_s") or IDLE_AFTER_S)

    def look(self, wanted: dict[str, Any]) -> None:
        """Start, measure or end the workload, by what is on the machine now.

        Raises: RefusedError, OSError, when it cannot be started or ended.
        """
        now_s = time.monotonic()
        if workload.is_busy(self.folders):
            self.busy_s, self.start_at_s, self.pause_s = now_s, 0.0, FIRST_PAUSE_S
            workload.end_runs(self.own)
        there = workload.open_runs(self.own)
        for run in there:
            if status.state_of(run)["state"] != "running":
                workload.end_runs(self.own)  # Its supervisor was lost, as by a restart.
                there = []
        if there:
            self._measure(now_s, float(wanted.get("measure_s") or MEASURE_S))
            if now_s - self.started_s > MOST_PAUSE_S:
                self.pause_s = FIRST_PAUSE_S
            return
        count_ended(self.folders)
        self.measured_s = 0.0
        is_idle = now_s - self.busy_s >= self.idle_after_s(wanted)
        if is_idle and now_s >= self.start_at_s:
            self.start_at_s = now_s + self.pause_s  # One that ends at once is not repeated at once.
            self.pause_s = min(2 * self.pause_s, MOST_PAUSE_S)
            self.started_s = now_s
            self._start(wanted)

    def fail(self, reason: str) -> None:
        """Keep why the workload could not be started or ended, unless the disk is full."""
        figures = read_figures(self.folders)
        if figures.get("reason") != reason[-MOST_REASON:]:
            figures["reason"] = reason[-MOST_REASON:]
            with contextlib.suppress(OSError):
                write_figures(self.folders, figures)

    def give_up(self) -> None:
        """End what is switched off or has no lease any more, and keep why if that is the lease."""
        with contextlib.suppress(RefusedError):  # Who has switched it off tries again as well.
            workload.end_runs(self.own)
        if workload.switched_on(self.folders) is not None:
            count_ended(self.folders)
            self.fail(lease.ended_reason(self.own))

    def _start(self, wanted: dict[str, Any]) -> None:
        """Stage the workload, and start it unless a run has come meanwhile."""
        run = self.own.run(workload.PREFIX + os.urandom(6).hex())
        try:
            stage.stage(self._request(run, wanted))
            network_wall.keep(self.folders, (run.read("spec.json") or {}).get("user"))
            # The folder of the workload exists before this look: see README.md.
            if workload.is_busy(self.folders) or workload.wanted(self.folders) != wanted:
                workload.end_runs(self.own)
                return
            start.start({"root": self.own.root, "run_id": run.run_id})
        except RefusedError:
            workload.end_runs(self.own)
            raise
        self.fail("")

    def _request(self, run: Run, wanted: dict[str, Any]) -> dict[str, Any]:
        image = wanted.get("image")
        runtime = "systemd" if "systemd" in inspection.runtimes() else "process"
        spec = {
            "is_idle_workload": True,
            "command": wanted["command"],
            "environment": wanted.get("environment") or {},
            "runtime": "podman" if image else runtime,
            "image": image,
            "user": JOB_USER,
            "gpu_uuids": [gpu["uuid"] for gpu in inspection.gpus()],
            "grace_s": workload.GRACE_S,
            "disk_size_gb": wanted.get("disk_size_gb"),
            "most_tasks": wanted.get("most_tasks"),
        }
        # Not `owned`: it is built and pulled without what the machine's owner has set up.
        return {"root": self.own.root, "run_id": run.run_id, "image": image, "spec": spec}

    def _measure(self, now_s: float, every_s: float) -> None:
        """Add what the GPUs have used since the last measurement, by their power now."""
        if now_s - self.measured_s < every_s:
            return
        gap_s, self.measured_s = now_s - self.measured_s, now_s
        watts = power_watts()
        if watts is None or gap_s > MOST_GAP_S:
            return
        figures = read_figures(self.folders)
        figures["energy_joules"] = (figures.get("energy_joules") or 0.0) + watts * gap_s
        figures["energy_s"] = figures.get("energy_s", 0.0) + gap_s
        write_figures(self.folders, figures)


def power_watts() -> float | None:
    """What all GPUs use now; None, where the driver does not tell it of each."""
    query = [nvidia_gpus.nvidia_smi() or "nvidia-smi", "--query-gpu=power.draw"]
    try:
        done = subprocess.run(
            [*query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=DRIVER_S,
        )
        lines = done.stdout.decode(errors="replace").split("\n")
        found = [float(line) for line in lines if line.strip()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not found or not all(0 <= one < 1e5 for one in found):
        return None
    return sum(found)
