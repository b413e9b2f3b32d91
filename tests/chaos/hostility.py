"""What an owner does to others through a machine: it says of their jobs whatever it likes."""

from __future__ import annotations

import asyncio
import time

from activities.site.signal_rates import MOST_OF_RUN_PER_MINUTE
from tests.chaos.campaign_stack import aside
from tests.chaos.kinds import Scene, kind
from tests.chaos.machines import announce, until_node
from tests.chaos.workload import ask_quietly
from tests.e2e.platform import ENDED
from tests.failure.hostile_machine import HostileMachine
from tests.failure.lies import FORGERIES, Lie, flood, forgeries, paths, violations

MET_S = 300.0
"""Until the platform has met a lie, although processes of ours are killed meanwhile."""
FORGED_S = 3.0
"""Forgeries break no rule: nothing but time shows that they were heard."""

_machines: dict[str, HostileMachine] = {}


def hostile(scene: Scene) -> HostileMachine:
    """The machine of the place, which can lie from its first fault on."""
    name = scene.place.name
    if name not in _machines:
        _machines[name] = HostileMachine(scene.place.machine)
    return _machines[name]


@kind("hostile", 2)
async def machine_lies(scene: Scene) -> None:
    """A machine tells a lie about the jobs of others, which end as if nothing had been said.

    All jobs that run are touched, wherever they are; the machine has one of its owner's as well.
    """
    machine = hostile(scene)
    own = await own_job(scene)
    (name,) = [one for one in machine.names() if one.startswith(own)]
    victims = scene.room.alive()
    lie = chosen(scene, name, [f"{job.id}-0-{job.row.get('attempt', 1)}" for job in victims])
    try:
        with scene.touching(victims):
            await aside(machine.lie, lie)
            await until_met(scene, machine, lie)
    finally:
        await aside(machine.be_honest)
        await aside(machine.end_watch)
        await be_a_node(scene, own)


async def own_job(scene: Scene) -> str:
    """A job of the machine's owner that runs there. Its id."""
    site = scene.place.site
    command = "while sleep 0.3; do echo own; done"
    path = await aside(site.platform.job, command, site.region_id)
    await aside(lambda: site.platform.until_status(path, "running", limit_s=MET_S))
    job_id = path.rsplit("/", 1)[1]
    scene.room.strays.add(job_id)  # Its run is left to the node where nobody believes its end.
    return job_id


def chosen(scene: Scene, name: str, victims: list[str]) -> Lie:
    """One of all lies. name: of the owner's own run; victims: the run ids of the others."""
    dice = scene.dice
    lies = [
        forgeries(dice, victims, [name]),
        paths(dice, victims),
        flood(name, MOST_OF_RUN_PER_MINUTE + 1),
    ]
    return dice.choice([*lies, *violations(dice, name)])


async def until_met(scene: Scene, machine: HostileMachine, lie: Lie) -> None:
    """Until the node has failed for the lie; forgeries break no rule, and are only heard.

    Raises: TimeoutError.
    """
    deadline = time.monotonic() + MET_S
    while not await has_failed(scene):
        asked = await aside(machine.asked, lie.verb)
        if lie.name == FORGERIES and asked:
            await asyncio.sleep(FORGED_S)
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{lie.name}: the platform has met it {asked} times, node goes on")
        await asyncio.sleep(0.3)


async def has_failed(scene: Scene) -> bool:
    node = await aside(scene.place.site.platform.get, scene.place.node)
    return bool(node["status"] == "failed")


async def be_a_node(scene: Scene, own: str) -> None:
    """Its owner's job has ended, and a new one runs; a person brings back a node that has failed.

    Raises: TimeoutError.
    """
    platform, site = scene.place.site.platform, scene.place.site
    await aside(ask_quietly, platform.post, f"/v1/jobs/{own}/cancel")
    proof = await aside(platform.job, "true", site.region_id)
    deadline = time.monotonic() + MET_S
    while True:
        if await has_failed(scene):
            await announce(scene)
            await until_node(scene, "maintenance", limit_s=MET_S)
            await aside(site.activate, scene.place.node)
        mine = [await aside(platform.get, path) for path in (f"/v1/jobs/{own}", proof)]
        if all(job["status"] in ENDED for job in mine):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{scene.place.name}: is no node again: {mine}")
        await asyncio.sleep(0.5)
