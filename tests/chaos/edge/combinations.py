"""Several things at once, by the dice of the seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.edge.faults import add
from tests.chaos.edge.our_side import SLOW_HEALTH, kill_all
from tests.chaos.edge.stage import DEVICES, LIMIT_S, Edge
from tests.lab.machine import Machine

STEPS = 4
MODEL_MIB = 20
Act = Callable[[Edge, str, Machine, random.Random], None]


def _power_cut(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    machine.power_cut()
    stage.injected(name)
    stage.pause(dice.uniform(0.0, 5.0))
    machine.boot()


def _network(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    machine.cut_network()
    stage.injected(name)
    stage.pause(dice.uniform(1.0, 30.0))
    machine.heal_network()


def _our_side(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    _ = machine, dice
    kill_all(stage, name)


def _sshd(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    _ = dice
    machine.restart_sshd(drop_sessions=True)
    stage.injected(name)


def _keeper(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    """The keeper alone is killed; only a boot or a deployment starts it again."""
    _ = dice
    machine.run("pkill", "-KILL", "-x", "baseload-device", check=False)
    stage.injected(name)


def _newer(stage: Edge, name: str, machine: Machine, dice: random.Random) -> None:
    """Something newer is asked of the device while the one before is on its way."""
    _ = dice
    stage.begin(machine.name, health=SLOW_HEALTH)
    stage.injected(name)


ACTS: tuple[Act, ...] = (_power_cut, _network, _our_side, _sshd, _keeper, _newer)


def at_random(stage: Edge, name: str, dice: random.Random) -> None:
    """A rollout to all devices, beside which several faults happen, one soon after another."""
    stage.begin(*DEVICES, model={"id": stage.model(MODEL_MIB)}, health=SLOW_HEALTH)
    for _ in range(STEPS):
        stage.pause(dice.uniform(0.0, 8.0))
        act, device = dice.choice(ACTS), dice.choice(sorted(DEVICES))
        stage.tell(f"{name}: {act.__name__[1:]} at {device}")
        act(stage, name, stage.machine(device), dice)
    stage.stack.wait_until_ready()
    for device in DEVICES:  # What a kill of its keeper has ended, a deployment starts again.
        stage.platform.until(
            stage.paths[device], lambda row: row["requested"]["followed"], "followed", LIMIT_S
        )
    stage.begin(*DEVICES)
    for device in DEVICES:
        stage.reach(device)


for number in (1, 2):
    add(f"at-random-{number}", at_random)
