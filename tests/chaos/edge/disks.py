"""The disk of a device is full, before a revision comes, while it comes, and while it runs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

from tests.chaos.edge.faults import fault
from tests.chaos.edge.moments import last_number, until_phase
from tests.chaos.edge.stage import LIMIT_S, ROOT, Edge
from tests.chaos.edge.verdicts import Wanted
from tests.lab.machine import Machine
from tests.lab.waiting import wait_until

SMALL, MODEL, DISK_MIB = "small", "Orin Nano", 1600
LEFT_TO_STAGE = 16 << 20
LEFT_TO_ARRIVE = 4 << 20
LEFT_TO_RUN = 128 << 10
MODEL_MIB = 120
FULL_S = 20.0
"""How long the disk is full under what runs: longer than the keeper, the copier and the supervisor
leave between two looks."""
FLOOD = "head -c 40000000 /dev/zero | tr '\\0' x | fold -w 99; echo\n"
"""Forty megabytes of log."""


def small_device(stage: Edge) -> Machine:
    """The device with a small disk, which is added once."""
    if SMALL not in stage.paths:
        stage.add_device(SMALL, MODEL, DISK_MIB)
        stage.ended(stage.begin(SMALL))
    return stage.machine(SMALL)


@contextlib.contextmanager
def filled(machine: Machine, left_bytes: int) -> Iterator[None]:
    """The small disk has so much room, until this is over."""

    def fills() -> bool:
        free = int(machine.run("stat", "-f", "-c", "%a", f"/{ROOT}")) * 4096
        try:
            resize(machine, f"{((DISK_MIB << 20) - free + left_bytes) >> 10}k")
        except RuntimeError:  # More is used by now.
            return False
        return True

    wait_until(fills, "the small disk is full", LIMIT_S)
    try:
        yield
    finally:
        resize(machine, f"{DISK_MIB}m")


def resize(machine: Machine, size: str) -> None:
    machine.run("mount", "-o", f"remount,size={size}", f"/{ROOT}")


@fault
def disk_full_before_staging(stage: Edge, name: str, dice: random.Random) -> None:
    """There is no room for a revision: it is refused with the reason, and the one before runs."""
    _ = dice
    machine = small_device(stage)
    before = stage.wanted[SMALL].revision
    with filled(machine, LEFT_TO_STAGE):
        stage.injected(name)
        deployment = stage.deploy(stage.revise(), SMALL)
        stage.wanted[SMALL] = Wanted(before, "disk of the node: asked")
        stage.ended(deployment)
    stage.look_around(name)
    stage.ended(stage.begin(SMALL))


@fault
def disk_full_while_a_model_comes(stage: Edge, name: str, dice: random.Random) -> None:
    """The disk is full before the model is there, and has room again later."""
    _ = dice
    machine = small_device(stage)
    before, model = stage.wanted[SMALL].revision, stage.model(MODEL_MIB)
    contents = machine.disk / ROOT / "contents"
    known = set(contents.iterdir()) if contents.exists() else set()
    revision = stage.revise(model={"id": model})
    deployment = stage.deploy(revision, SMALL)
    comes = lambda: contents.exists() and set(contents.iterdir()) - known  # noqa: E731
    wait_until(comes, "the model comes", LIMIT_S)
    with filled(machine, LEFT_TO_ARRIVE):
        stage.injected(name)
        stage.pause(FULL_S)
    counts = stage.ended(deployment)["counts"]
    stage.wanted[SMALL] = Wanted(revision) if counts["running"] else Wanted(before, "room")
    stage.tell(f"{name}: {counts}")


@fault
def disk_full_while_it_runs(stage: Edge, name: str, dice: random.Random) -> None:
    """What runs meets a full disk, runs on, and loses nothing of what was written."""
    _ = dice
    machine = small_device(stage)
    with filled(machine, LEFT_TO_RUN):
        stage.injected(name)
        stage.pause(FULL_S)


@fault
def disk_full_during_a_switch(stage: Edge, name: str, dice: random.Random) -> None:
    """The disk is full from the moment at which a staged revision is checked."""
    _ = dice
    machine = small_device(stage)
    last = last_number(stage, SMALL)
    deployment = stage.begin(SMALL, health={"up_s": 6, "limit_s": 60})
    until_phase(stage, SMALL, last, "checking")
    with filled(machine, 0):
        stage.injected(name)
        stage.pause(FULL_S)
    stage.ended(deployment)
    stage.reach(SMALL)


@fault
def log_of_forty_megabytes(stage: Edge, name: str, dice: random.Random) -> None:
    """The log of an inference is bounded, and its end can be read."""
    _ = dice
    small_device(stage)
    stage.injected(name)
    stage.ended(stage.begin(SMALL, how=FLOOD, health={"up_s": 10, "limit_s": 60}))
