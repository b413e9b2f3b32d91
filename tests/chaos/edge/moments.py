"""The moments of a deployment on its device, and a power cut exactly there.

The keeper is stopped first, and the power is cut only when its files say that the moment is still
that one: what the disk has at the next boot is what it had then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.edge.stage import KEEPER, ROOT, Edge, number_in, read
from tests.lab.machine import Machine
from tests.lab.waiting import wait_until

LIMIT_S = 300.0
FAR_S, NEAR_S = 0.005, 0.0005
"""Between two looks at the files of a device, before its keeper was asked and after that."""


@dataclass(frozen=True)
class Files:
    """What the disk of a device says of the next assignment after the number `after`."""

    root: Path
    after: int

    def phase(self) -> str:
        """The phase in which the device is with it, see `activities/agent/devices/state.py`."""
        state = read(self.root / "device/state.json")
        trial = state.get("trial") or {}
        if int(trial.get("number", 0)) > self.after:
            return str(trial["phase"])
        if int(state.get("done", 0)) > self.after:
            return "done"
        asked = read(self.root / "device/asked.json")
        if int(asked.get("number", 0)) > self.after:
            ends = asked["kind"] == "stop" and state.get("status") == "stopped"
            return "ending" if ends else "asked"
        return self._staged()

    def _staged(self) -> str:
        newer = [each for each in (self.root / "runs").iterdir() if number_in(each) > self.after]
        if not newer:
            return "unknown"
        return "staged" if (newer[0] / "spec.json").exists() else "staging"


def last_number(stage: Edge, device: str) -> int:
    """The number of the last assignment of which a device has anything."""
    folders = (stage.root(device) / "runs").iterdir()
    done = int(stage.state(device).get("done", 0))
    return max([done, *map(number_in, folders)])


def until_phase(stage: Edge, device: str, after: int, *phases: str) -> None:
    """Wait until a device is in one of these phases with the assignment after that one.

    Raises: TimeoutError.
    """
    files = Files(stage.machine(device).disk / ROOT, after)
    wait_until(lambda: files.phase() in phases, f"{device}: {phases} after {after}", LIMIT_S)


def keepers_of(machine: Machine) -> list[int]:
    """The process ids of a device's keeper, of what it has forked, too."""
    found = []
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            if f"\0{KEEPER}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def cut_at(stage: Edge, name: str, after: int, phase: str) -> bool:
    """Cut the power of a device in a phase of its next assignment; False: the phase was missed.

    Raises: TimeoutError, when the phase does not come.
    """
    machine = stage.machine(name)
    files = Files(machine.disk / ROOT, after)
    if not held_at(machine, files, lambda found: found == phase, lambda found: found == "done"):
        return False
    machine.power_cut()
    return True


def held_at(
    machine: Machine,
    files: Files,
    is_it: Callable[[str], bool],
    is_over: Callable[[str], bool],
) -> bool:
    """Stop the keeper in a phase; False, with the keeper running, when it was missed."""
    deadline = time.monotonic() + LIMIT_S
    keepers: list[int] = []
    while True:
        found = files.phase()
        if is_it(found):
            break
        if is_over(found):
            return False
        if time.monotonic() > deadline:
            raise TimeoutError(f"{machine.name}: its assignment is {found} after {LIMIT_S:g} s")
        is_near = found not in ("unknown", "staging")
        if is_near and not keepers:
            keepers = keepers_of(machine)
        time.sleep(NEAR_S if is_near else FAR_S)
    _send(keepers or keepers_of(machine), signal.SIGSTOP)
    if is_it(files.phase()):
        return True
    _send(keepers, signal.SIGCONT)
    return False


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
