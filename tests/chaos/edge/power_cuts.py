"""Power cuts of a device in each phase of a deployment, and of a stop."""

from __future__ import annotations

import random
from functools import partial

from tests.chaos.edge.faults import add, fault
from tests.chaos.edge.moments import Files, cut_at
from tests.chaos.edge.stage import HEALTH, LIMIT_S, ROOT, Edge
from tests.chaos.edge.verdicts import Wanted
from tests.lab.waiting import wait_until

TRIES = 8
PHASES = ("staging", "staged", "asked", "stopping", "starting", "checking", "done")
MODEL_MIB = 60
"""So large that its transfer takes a while."""
STUBBORN = "trap '' TERM"
"""What makes a command take the whole of its grace."""
BAD = {"up_s": 1, "limit_s": 2, "log_line": "a line that never comes"}


def number_of(stage: Edge, name: str) -> int:
    """The number of the next assignment of a device."""
    row = stage.state(name)
    return int(row.get("done", 0)) + 1


def cut_in(phase: str, stage: Edge, name: str, dice: random.Random) -> None:
    """Deploy, cut the power in the phase, and boot: the device comes to what was asked."""
    device = dice.choice(sorted(stage.paths))
    for _ in range(TRIES):
        changes = {"model": {"id": stage.model(MODEL_MIB)}} if phase == "staging" else {}
        number = number_of(stage, device)
        deployment = stage.begin(device, **changes)
        is_cut = cut_at(stage, device, number, phase)
        if is_cut:
            stage.injected(name)
            stage.machine(device).boot()
        stage.ended(deployment)
        stage.reach(device)
        if is_cut:
            return


for each in PHASES:
    add(f"power-cut-{each}", partial(cut_in, each))
