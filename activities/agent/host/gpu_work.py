"""The utilisation of this machine's GPUs, as their drivers report it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Dict

from . import amd_gpus, jetson
from .nvidia_gpus import nvidia_smi

ANSWER_S = 30.0
FRESH_S = 0.5
"""How old an answer may be by which a run counts as active."""
FIELDS = ("uuid", "utilization.gpu", "memory.used", "memory.total")
Figures = Dict[str, Dict[str, Any]]


class GpuWork:
    """The poller of the GPUs' utilisation, which never waits for a driver."""

    def __init__(self) -> None:
        self._drivers = _drivers()

    def percent(self) -> dict[str, int] | None:
        """Percent by uuid, of those that their driver tells; None: one has not answered yet."""
        found = self.figures(FRESH_S)
        if found is None:
            return None
        return {uuid: gpu["percent"] for uuid, gpu in found.items() if gpu["percent"] is not None}

    def figures(self, most_age_s: float) -> Figures | None:
        """`percent`, `memory_used_mib` and `memory_total_mib` by uuid, each None where the driver
        does not tell it; None: a driver has not answered yet.
        """
        merged: Figures = {}
        answers = [driver.figures(most_age_s) for driver in self._drivers]
        for answer in answers:
            if answer is None:
                return None
            merged.update(answer)
        return merged


class _Driver:
    """One driver: the command that asks it, and how to read what that prints."""

    def __init__(self, query: list[str], read: Callable[[list[str]], Figures]) -> None:
        self._query = query
        self._read = read
        self._asked: subprocess.Popen[bytes] | None = None
        self._asked_s = 0.0
        self._found: Figures | None = None
        self._found_s = 0.0

    def figures(self, most_age_s: float) -> Figures | None:
        """What the driver tells; None: it has not answered yet."""
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

    def _ask(self) -> Figures | None:
        try:
            self._asked = subprocess.Popen(
                self._query,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return {}
        self._asked_s = time.monotonic()
        return None

    def _answer(self, asked: subprocess.Popen[bytes]) -> Figures:
        self._asked = None
        text, _ = asked.communicate()
        # A search of many files fails when one of them cannot be read, and prints the others.
        if asked.returncode != 0 and not (self._query[0] == "grep" and text):
            return {}
        return self._read(text.decode(errors="replace").splitlines())


def _drivers() -> list[_Driver]:
    """The drivers of this machine; that of NVIDIA, which is asked where there is no other."""
    cards, loads = amd_gpus.cards(), jetson.load_files() if jetson.is_jetson() else []
    if loads:
        return [_Driver(["grep", "-H", "", *loads[:1]], _of_jetson)]
    tool, drivers = nvidia_smi(), []
    if tool is not None or not cards:
        query = "--query-gpu=" + ",".join(FIELDS)
        arguments = [tool or "nvidia-smi", query, "--format=csv,noheader,nounits"]
        drivers.append(_Driver(arguments, _of_nvidia))
    if cards:
        # By another process, because a file of a hanging GPU is read for ever.
        files = ["grep", "-H", "", *amd_gpus.figure_files(cards)]
        drivers.append(_Driver(files, lambda lines: amd_gpus.figures(cards, lines)))
    return drivers


def _of_nvidia(lines: list[str]) -> Figures:
    found = {}
    for line in lines:
        uuid, *fields = [field.strip() for field in line.split(",")]
        numbers = [int(each) if each.isdigit() else None for each in fields]  # Not `[N/A]`.
        percent, used, total = (numbers + [None] * 3)[:3]
        found[uuid] = {"percent": percent, "memory_used_mib": used, "memory_total_mib": total}
    return found


def _of_jetson(lines: list[str]) -> Figures:
    """The one GPU of a Jetson, whose memory is the machine's, so that no share of it is its own."""
    thousandths = [line.rpartition(":")[2].strip() for line in lines]
    percent = next((min(100, int(each) // 10) for each in thousandths if each.isdigit()), None)
    figures = {"percent": percent, "memory_used_mib": None, "memory_total_mib": None}
    return {jetson.gpu_uuid(): figures}
