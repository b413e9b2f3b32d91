"""The utilisation of a node: CPU and memory of its runs by /proc, and its GPUs by their driver."""

from __future__ import annotations

import os
import time
from typing import Any

from ..folders import Run
from ..host import processes
from ..host.gpu_work import GpuWork

INTERVAL_S = 10.0
MOST_RUNS = 256
MOST_GPUS = 64
FRESH_GPUS_S = 5.0


class Utilisation:
    """The measurements of one watcher, of which each counts the CPU time since the one before.

    every_s: the time between two of them.
    """

    def __init__(self, gpus: GpuWork, every_s: float = INTERVAL_S) -> None:
        self._gpus = gpus
        self._every_s = every_s
        self._due_s = 0.0
        self._spent: dict[str, tuple[float, int]] = {}
        """When each run was measured last, and the CPU ticks that it had spent by then."""

    def frame(self, runs: list[Run], has_gpus: bool) -> dict[str, Any] | None:
        """The frame for these runs, when it is due and the driver of the GPUs has answered.

        After the last run there is one more frame, without runs.
        """
        if time.monotonic() < self._due_s or not (runs or self._spent):
            return None
        gpus = self._gpus.figures(FRESH_GPUS_S) if has_gpus else {}
        if gpus is None:
            return None
        self._due_s = time.monotonic() + self._every_s
        return {
            "kind": "utilisation",
            "gpus": [{"uuid": uuid, **gpu} for uuid, gpu in list(gpus.items())[:MOST_GPUS]],
            "runs": self._measured(runs[:MOST_RUNS]),
        }

    def _measured(self, runs: list[Run]) -> list[dict[str, Any]]:
        everything = [one for one in processes.everything() if not one.has_ended] if runs else []
        before, self._spent = self._spent, {}
        return [self._of_run(run, everything, before.get(run.run_id)) for run in runs]

    def _of_run(
        self, run: Run, everything: list[processes.Process], before: tuple[float, int] | None
    ) -> dict[str, Any]:
        """One run: what descends from its supervisor, which takes over every orphan below it.

        What the supervisor spends itself is little; its children that have ended count there.
        """
        process = run.read("process.json") or {}
        known = process.get("supervisor_pid"), process.get("supervisor_start_ticks")
        own = [one for one in everything if (one.pid, one.start_ticks) == known]
        command = processes.descendants({one.pid for one in own}, everything)
        family = own + command
        now_s, ticks = time.monotonic(), sum(one.cpu_ticks for one in family)
        self._spent[run.run_id] = now_s, ticks
        percent = None
        if before is not None and now_s > before[0]:
            spent_s = max(0, ticks - before[1]) / os.sysconf("SC_CLK_TCK")
            percent = round(100 * spent_s / (now_s - before[0]), 1)
        return {
            "run_id": run.run_id,
            "cpu_percent": percent,
            "memory_bytes": sum(one.memory_pages for one in command) * os.sysconf("SC_PAGE_SIZE"),
        }
