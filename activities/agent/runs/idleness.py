"""The idleness of runs: a run is active while its log grows or one of its GPUs works.

Only runs whose spec has `idle_timeout_s` are checked. A run is idle since the last moment at which
its log had grown, one of its GPUs worked, or the work of its GPUs was unknown. The watcher checks
the runs and writes its observations down, so that the next watcher continues from them.
"""

from __future__ import annotations

from typing import Any

from ..folders import Run
from ..host import processes

FILE = "idle.json"
AT_REST_PERCENT = 3
"""A GPU at or below this share is idle: a desktop or a monitoring tool uses this much."""
MOST_PAUSE_S = 10.0
WARNED_AT = 0.75
"""The part of the limit after which people are warned, so that there is time to act."""
CHECKS_PER_LIMIT = 30.0
"""The number of checks within the idle limit: all of them miss a GPU that works a fifth of the time
only once in a thousand times."""
UNOBSERVED_S = 120.0
"""The longest gap between two checks, such as during a restart of the watch; after a longer gap the
earlier observation does not count, because the run may have been active in between."""


class Idleness:
    """The idleness of one run that has an idle limit."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self.run = run
        self.limit_s = float(spec["idle_timeout_s"])
        self.gpus: list[str] = spec.get("gpu_uuids") or []
        self.due_s = 0.0
        self.reported = 0
        """Of the warning and the limit, how many are reported since the run was active."""
        self.pause_s = min(MOST_PAUSE_S, self.limit_s / CHECKS_PER_LIMIT)
        now_s = processes.monotonic_s()
        self.since_s, self.log_bytes = now_s, run.log_bytes()
        before = _read(run)
        if before is not None and now_s - before["seen_s"] <= max(UNOBSERVED_S, 2 * self.pause_s):
            self.since_s, self.log_bytes = before["since_s"], before["log_bytes"]

    @property
    def is_due(self) -> bool:
        """Whether the next check is due."""
        return processes.monotonic_s() >= self.due_s

    @property
    def asks_for_gpus(self) -> bool:
        """Whether the log has not grown, so that the work of the GPUs decides."""
        return bool(self.gpus) and self.run.log_bytes() == self.log_bytes

    def check(self, percent: dict[str, int]) -> dict[str, Any] | None:
        """The report of the idle seconds: `idle_soon` before the limit, `idle` at it, once each.

        None when there is nothing to report.
        percent: how much each GPU works, by UUID; a GPU that is missing may work.
        """
        now_s, log_bytes = processes.monotonic_s(), self.run.log_bytes()
        works = any(percent.get(gpu, 100) > AT_REST_PERCENT for gpu in self.gpus)
        if works or log_bytes != self.log_bytes:
            self.since_s, self.reported = now_s, 0
        self.log_bytes, self.due_s = log_bytes, now_s + self.pause_s
        self._write(now_s)
        idle_s = now_s - self.since_s
        reached = (idle_s >= self.limit_s * WARNED_AT) + (idle_s >= self.limit_s)
        if reached <= self.reported:
            return None
        self.reported = reached
        return {"kind": "idle" if reached > 1 else "idle_soon", "idle_s": idle_s}

    def _write(self, now_s: float) -> None:
        observation = {
            "boot_id": processes.boot_id(),
            "since_s": self.since_s,
            "seen_s": now_s,
            "log_bytes": self.log_bytes,
        }
        try:
            self.run.write(FILE, observation, durable=False)
        except OSError:  # A full disk, or a run that is just being removed.
            self.due_s = now_s + MOST_PAUSE_S


def idle_s(run: Run) -> float:
    """The observed idle seconds of a run; 0 for a run that is not checked."""
    last = _read(run)
    return 0.0 if last is None else max(0.0, float(last["seen_s"] - last["since_s"]))


def _read(run: Run) -> dict[str, Any] | None:
    """The last observation of this boot."""
    last = run.read(FILE)
    return last if last and processes.is_of_this_boot(last) else None
