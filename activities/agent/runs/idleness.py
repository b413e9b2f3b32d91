"""Whether runs do anything: a log that grows, or a GPU that works.

Only runs whose spec has `idle_timeout_s` are looked at. One is idle since the last moment at which
its log was longer than before, one of its GPUs worked, or nobody knew whether it did. The watcher
looks, and writes down what it has seen, so that the next watcher goes on from there.
"""

from __future__ import annotations

from typing import Any

from ..folders import Run
from ..host import processes

FILE = "idle.json"
AT_REST_PERCENT = 3
"""A GPU that does no more than this does nothing: what a desktop or a monitor of it takes."""
MOST_PAUSE_S = 10.0
LOOKS_A_LIMIT = 30.0
"""Looks within the time that a run may be idle: a GPU that works a fifth of the time is missed by
all of them once in a thousand times."""
UNSEEN_S = 120.0
"""So long nobody may have looked, as while the watch was begun anew; what a log or a GPU has done
longer ago than that nobody knows."""


class Idleness:
    """One run that is to be idle for no longer than its limit."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self.run = run
        self.limit_s = float(spec["idle_timeout_s"])
        self.gpus: list[str] = spec.get("gpu_uuids") or []
        self.due_s = 0.0
        self.told = False
        self.pause_s = min(MOST_PAUSE_S, self.limit_s / LOOKS_A_LIMIT)
        now_s = processes.monotonic_s()
        self.since_s, self.log_bytes = now_s, run.log_bytes()
        before = _read(run)
        if before is not None and now_s - before["seen_s"] <= max(UNSEEN_S, 2 * self.pause_s):
            self.since_s, self.log_bytes = before["since_s"], before["log_bytes"]

    @property
    def is_due(self) -> bool:
        """It is time to look again."""
        return processes.monotonic_s() >= self.due_s

    @property
    def asks_for_gpus(self) -> bool:
        """Its log says nothing, so it is for its GPUs to say whether it does anything."""
        return bool(self.gpus) and self.run.log_bytes() == self.log_bytes

    def look(self, percent: dict[str, int]) -> float | None:
        """For how long it has been idle, to be told once; None: there is nothing to tell.

        percent: how much each GPU works, by uuid; one that is not in it may work.
        """
        now_s, log_bytes = processes.monotonic_s(), self.run.log_bytes()
        works = any(percent.get(gpu, 100) > AT_REST_PERCENT for gpu in self.gpus)
        if works or log_bytes != self.log_bytes:
            self.since_s, self.told = now_s, False
        self.log_bytes, self.due_s = log_bytes, now_s + self.pause_s
        self._write(now_s)
        if self.told or now_s - self.since_s < self.limit_s:
            return None
        self.told = True
        return now_s - self.since_s

    def _write(self, now_s: float) -> None:
        seen = {
            "boot_id": processes.boot_id(),
            "since_s": self.since_s,
            "seen_s": now_s,
            "log_bytes": self.log_bytes,
        }
        try:
            self.run.write(FILE, seen, durable=False)
        except OSError:  # A full disk, or a run that is just removed.
            self.due_s = now_s + MOST_PAUSE_S


def idle_s(run: Run) -> float:
    """For how long a run has been seen to be idle; 0 where nobody looks."""
    seen = _read(run)
    return 0.0 if seen is None else max(0.0, float(seen["seen_s"] - seen["since_s"]))


def _read(run: Run) -> dict[str, Any] | None:
    """What was seen last, since this boot."""
    seen = run.read(FILE)
    return seen if seen and seen["boot_id"] == processes.boot_id() else None
