"""Power cuts of a device in each phase of a deployment, and of a stop."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.chaos.edge.faults import add, fault
from tests.chaos.edge.moments import cut_at, last_number
from tests.chaos.edge.stage import DEVICES, LIMIT_S, Edge
from tests.chaos.edge.verdicts import Wanted
from tests.lab.waiting import wait_until

TRIES = 8
PHASES = ("staging", "staged", "asked", "stopping", "starting", "checking", "done")
MODEL_MIB = 60
"""So large that its transfer takes a while."""
STUBBORN = "trap '' TERM"
"""What makes a command take the whole of its grace."""
BAD = {"up_s": 1, "limit_s": 2, "log_line": "a line that never comes"}


def cut_in(phase: str, stage: Edge, name: str, dice: random.Random) -> None:
    """Deploy, cut the power in the phase, and boot: the device comes to what was asked."""
    device = dice.choice(sorted(DEVICES))
    for _ in range(TRIES):
        changes: dict[str, Any] = {}
        if phase == "staging":
            changes["model"] = {"id": stage.model(MODEL_MIB)}
        if phase == "stopping":  # What runs takes the whole of its grace.
            stage.ended(stage.begin(device, how=STUBBORN))
        last = last_number(stage, device)
        deployment = stage.begin(device, **changes)
        is_cut = cut_at(stage, device, last, phase)
        if is_cut:
            stage.injected(name)
            stage.machine(device).boot()
        stage.ended(deployment)
        stage.reach(device)
        if is_cut:
            return


for each in PHASES:
    add(f"power-cut-{each}", partial(cut_in, each))


@fault
def power_cut_returning(stage: Edge, name: str, dice: random.Random) -> None:
    """A bad revision: the device runs the one before, and says why."""
    device = dice.choice(sorted(DEVICES))
    before = stage.wanted[device].revision
    for _ in range(TRIES):
        last = last_number(stage, device)
        deployment = stage.deploy(stage.revise(health=BAD), device)
        stage.wanted[device] = Wanted(before, "no line of its log has")
        is_cut = cut_at(stage, device, last, "returning")
        if is_cut:
            stage.injected(name)
            stage.machine(device).boot()
        _failed(stage, deployment)
        stage.reach(device)
        if is_cut:
            return


@fault
def power_cut_three_times_while_checked(stage: Edge, name: str, dice: random.Random) -> None:
    """A revision under which the device restarts again and again is given up."""
    device = dice.choice(sorted(DEVICES))
    before = stage.wanted[device].revision
    last = last_number(stage, device)
    health = {"up_s": 30, "limit_s": 60}
    deployment = stage.deploy(stage.revise(health=health), device)
    stage.wanted[device] = Wanted(before, "restarted 3 times before it was healthy")
    for starts in (1, 2, 3):
        _until_started(stage, device, last, starts)
        if not cut_at(stage, device, last, "checking"):
            raise AssertionError(f"{device}: was over before start {starts}")
        stage.injected(name)
        stage.machine(device).boot()
    _failed(stage, deployment)
    stage.reach(device)


@fault
def power_cut_stopping_for_good(stage: Edge, name: str, dice: random.Random) -> None:
    """A person stops the inference: it is stopped after the boot too, until the next deployment."""
    device = dice.choice(sorted(DEVICES))
    for _ in range(TRIES):
        stage.ended(stage.begin(device, how=STUBBORN))
        last = last_number(stage, device)
        stage.platform.post(f"{stage.paths[device]}/stop")
        is_cut = cut_at(stage, device, last, "ending")
        if is_cut:
            stage.injected(name)
            stage.machine(device).boot()
        stage.wanted[device] = Wanted(None)
        stage.platform.until(
            stage.paths[device],
            lambda row: row["requested"]["followed"] and row["status"] == "active",
            "it is stopped",
            LIMIT_S,
        )
        if is_cut:
            stage.look_around(name)
        stage.ended(stage.begin(device))
        if is_cut:
            return


@fault
def power_cut_while_running(stage: Edge, name: str, dice: random.Random) -> None:
    """All devices lose their power at once, and run what they ran without being asked."""
    for device in DEVICES:
        stage.machine(device).power_cut()
        stage.injected(name)
    for device in DEVICES:
        stage.machine(device).boot()
    for device in DEVICES:
        stage.reach(device)


def _failed(stage: Edge, deployment: str) -> None:
    """Wait until a deployment has ended with its one device failed."""
    counts = stage.ended(deployment)["counts"]
    if counts["failed"] != 1:
        raise AssertionError(f"{deployment}: must have failed: {counts}")


def _until_started(stage: Edge, device: str, after: int, starts: int) -> None:
    """Wait until a trial was started so many times."""

    def is_started() -> bool:
        trial = stage.state(device).get("trial") or {}
        return int(trial.get("number", 0)) > after and trial["starts"] >= starts

    wait_until(is_started, f"{device}: start {starts} after {after}", LIMIT_S)
