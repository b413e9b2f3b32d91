"""The utilisation of this machine's GPUs, as their driver reports it."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from .inspection import nvidia_smi

ANSWER_S = 30.0
FRESH_S = 0.5
"""How old an answer may be by which a run counts as active."""
FIELDS = ("uuid", "utilization.gpu", "memory.used", "memory.total")


class GpuWork:
    """The poller of the GPUs' utilisation, which never waits for the driver."""

    def __init__(self) -> None:
        self._asked: subprocess.Popen[bytes] | None = None
        self._asked_s = 0.0
        self._found: dict[str, dict[str, Any]] | None = None
        self._found_s = 0.0

    def percent(self) -> dict[str, int] | None:
        """Percent by uuid, of those that the driver tells; None: it has not answered yet."""
        found = self.figures(FRESH_S)
        if found is None:
            return None
        return {uuid: gpu["percent"] for uuid, gpu in found.items() if gpu["percent"] is not None}

    def figures(self, most_age_s: float) -> dict[str, dict[str, Any]] | None:
        """`percent`, `memory_used_mib` and `memory_total_mib` by uuid, each None where the driver
        does not tell it; None: the driver has not answered yet.
        """
        now_s = time.monotonic()
        if self._asked is not None and self._asked.poll() is not None:
            self._found, self._found_s = self._answer(self._asked), now_s
        if self._found is not None and now_s - self._found_s <= most_age_s:
            return self._found
        if self._asked is None:
            return self._ask()
        if now_s < self._asked_s + ANSWER_S:
            return None
        # It may sleep where no signal reaches it: then it is never asked beside it.
        self._asked.kill()
        return {}

    def _ask(self) -> dict[str, dict[str, Any]] | None:
        query = [
            nvidia_smi() or "nvidia-smi",
            "--query-gpu=" + ",".join(FIELDS),
            "--format=csv,noheader,nounits",
        ]
        try:
            self._asked = subprocess.Popen(
                query,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return {}
        self._asked_s = time.monotonic()
        return None

    def _answer(self, asked: subprocess.Popen[bytes]) -> dict[str, dict[str, Any]]:
        self._asked = None
        text, _ = asked.communicate()
        if asked.returncode != 0:
            return {}
        found = {}
        for line in text.decode(errors="replace").splitlines():
            uuid, *fields = [field.strip() for field in line.split(",")]
            numbers = [int(each) if each.isdigit() else None for each in fields]  # Not `[N/A]`.
            percent, used, total = (numbers + [None] * 3)[:3]
            found[uuid] = {"percent": percent, "memory_used_mib": used, "memory_total_mib": total}
        return found
