"""The platform is dead, or the network between it and its devices."""

from __future__ import annotations

import random
import signal

from tests.chaos.edge.faults import fault
from tests.chaos.edge.moments import last_number, until_phase
from tests.chaos.edge.stage import DEVICES, LIMIT_S, Edge
from tests.chaos.edge.verdicts import Wanted
from tests.chaos.stack import PROGRAMS
from tests.lab.waiting import wait_until

AWAY_S = 150.0
"""Longer than a watch is silent, a probe lasts, a datastore is left alone and a deployment waits
for devices that are away."""
LEAST_LIMIT_S = 60
SLOW_HEALTH = {"up_s": 6, "limit_s": 60, "log_line": None}
MODEL_MIB = 60


def kill_all(stage: Edge, name: str) -> None:
    """kill -9 each program of ours."""
    for program in PROGRAMS:
        if stage.stack.send(program, signal.SIGKILL) is not None:
            stage.injected(name)


@fault
def our_side_killed_while_staging(stage: Edge, name: str, dice: random.Random) -> None:
    """Everything of ours dies while a model is on its way: the rollout goes on."""
    device = dice.choice(sorted(DEVICES))
    model, last = stage.model(MODEL_MIB), last_number(stage, device)
    deployment = stage.begin(device, model={"id": model})
    until_phase(stage, device, last, "staging", "staged", "asked")
    kill_all(stage, name)
    stage.stack.wait_until_ready()
    stage.ended(deployment)
    stage.reach(device)


@fault
def our_side_killed_while_checking(stage: Edge, name: str, dice: random.Random) -> None:
    """Nothing of ours is there when the device decides; it is found out afterwards."""
    device = dice.choice(sorted(DEVICES))
    last = last_number(stage, device)
    deployment = stage.begin(device, health=SLOW_HEALTH)
    until_phase(stage, device, last, "checking")
    with stage.stack.left_alone():
        kill_all(stage, name)
        until_phase(stage, device, last, "done")
    stage.stack.wait_until_ready()
    stage.ended(deployment)
    stage.reach(device)


@fault
def our_side_killed_between_devices(stage: Edge, name: str, dice: random.Random) -> None:
    """The first device of a rollout is over when everything dies: the second one follows."""
    _ = dice
    lasts = {device: last_number(stage, device) for device in DEVICES}
    deployment = stage.begin(*DEVICES, policy={"max_unavailable": 1})

    def is_over(device: str) -> bool:
        return int(stage.state(device).get("done", 0)) > lasts[device]

    wait_until(lambda: any(map(is_over, DEVICES)), "the first device is over", LIMIT_S)
    kill_all(stage, name)
    stage.stack.wait_until_ready()
    stage.ended(deployment)
    for device in DEVICES:
        stage.reach(device)


@fault
def worker_killed_again_and_again(stage: Edge, name: str, dice: random.Random) -> None:
    """The worker dies every few seconds of a rollout."""
    deployment = stage.begin(*DEVICES, model={"id": stage.model(MODEL_MIB)}, health=SLOW_HEALTH)
    for _ in range(4):
        stage.pause(dice.uniform(1.0, 5.0))
        stage.stack.kill("worker")
        stage.injected(name)
    stage.ended(deployment)
    for device in DEVICES:
        stage.reach(device)


@fault
def network_away_while_it_runs(stage: Edge, name: str, dice: random.Random) -> None:
    """The device runs on and keeps its output; what was asked meanwhile is followed later."""
    device = dice.choice(sorted(DEVICES))
    runs = stage.wanted[device].revision
    machine = stage.machine(device)
    before = stage.ledger_of(device)
    machine.cut_network()
    stage.injected(name)
    try:
        stage.platform.until_status(stage.paths[device], "offline", limit_s=LIMIT_S)
        deployment = stage.begin(device, policy={"limit_s": LEAST_LIMIT_S})
        stage.pause(AWAY_S)
        if stage.ended(deployment)["counts"]["left"] != 1:
            stage.wrong(name, "untrue", f"{deployment}: has not left the device that is away")
        now = stage.seen(device).inferences
        if now != (runs,) or stage.ledger_of(device) <= before:
            stage.wrong(name, "lost", f"{device}: does not run on while it is away: {now}")
    finally:
        machine.heal_network()
    stage.reach(device)


@fault
def network_away_while_staging(stage: Edge, name: str, dice: random.Random) -> None:
    """The network goes away while a model is on its way, and is back after a while."""
    device = dice.choice(sorted(DEVICES))
    model, last = stage.model(MODEL_MIB), last_number(stage, device)
    deployment = stage.begin(device, model={"id": model})
    until_phase(stage, device, last, "staging", "staged")
    stage.machine(device).cut_network()
    stage.injected(name)
    try:
        stage.platform.until_status(stage.paths[device], "offline", limit_s=LIMIT_S)
    finally:
        stage.machine(device).heal_network()
    stage.ended(deployment)
    stage.reach(device)


@fault
def network_away_while_checking(stage: Edge, name: str, dice: random.Random) -> None:
    """The device decides alone, against the revision, and runs the one before."""
    device = dice.choice(sorted(DEVICES))
    before, last = stage.wanted[device].revision, last_number(stage, device)
    health = {"up_s": 1, "limit_s": 6, "log_line": "a line that never comes"}
    deployment = stage.deploy(stage.revise(health=health), device)
    stage.wanted[device] = Wanted(before, "no line of its log has")
    until_phase(stage, device, last, "checking")
    stage.machine(device).cut_network()
    stage.injected(name)
    try:
        until_phase(stage, device, last, "done")
        stage.platform.until_status(stage.paths[device], "offline", limit_s=LIMIT_S)
    finally:
        stage.machine(device).heal_network()
    stage.ended(deployment)
    stage.reach(device)
