"""A power cut in each phase of a switch, on a whole machine, without a platform."""

from __future__ import annotations

import asyncio

from tests.chaos.edge.moments import Files, held_at
from tests.lab.agent import ROOT, agent_on
from tests.lab.fixtures import BootMachine, boot_machine, lab
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.test_devices_on_machines import (
    LIMIT_S,
    QUICK,
    deploy,
    name_of,
    sleeper,
    stage,
    state_of,
    switch,
    wait_for_sleeper,
)
from tests.lab.waiting import wait_until

__all__ = ["boot_machine", "lab"]
PHASES = ("asked", "stopping", "starting", "checking", "done")
TRIES = 8


async def cut_in(lab: Lab, machine: Machine, phase: str, number: int) -> bool:
    """Switch to a revision and cut the power in the phase; False, when it was missed."""
    files = Files(machine.disk / ROOT[1:], number - 1)
    async with agent_on(lab, machine) as agent:
        await stage(agent, number, f"trap '' TERM; {sleeper(number)}")
        health = {**QUICK, "up_s": 1}
        await agent.begin_call(
            "switch_device", number=number, run_id=name_of(number), health=health
        )
        is_held = await asyncio.to_thread(
            held_at, machine, files, lambda found: found == phase, lambda found: found == "done"
        )
    if is_held:
        machine.power_cut()
        machine.boot()
    wait_for_sleeper(machine, number)
    wait_until(lambda: state_of(machine).get("done") == number, f"{number} is decided", LIMIT_S)
    return is_held


async def test_a_power_cut_in_any_phase_of_a_switch_ends_with_the_revision_alone(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
    number = 1
    for phase in PHASES:
        for _ in range(TRIES):
            number += 1
            if await cut_in(lab, machine, phase, number):
                break
        else:
            raise AssertionError(f"{phase}: missed {TRIES} times")
        await must_run(lab, machine, number)


async def must_run(lab: Lab, machine: Machine, number: int) -> None:
    """The device has this revision and the one before, and says that it was deployed."""
    kept = {name_of(number - 1), name_of(number)}
    wait_until(lambda: set(machine.run("ls", "-A", f"{ROOT}/runs").split()) == kept, "no more")
    assert machine.run("ls", "-A", f"{ROOT}/device").count(".part-") == 0
    async with agent_on(lab, machine) as agent:
        answer = await switch(agent, number)
    assert (answer["run"]["number"], answer["run"]["status"]) == (number, "running")
    assert answer["failed"] is None
