"""What happens to machines: their power, their cable, their sshd, their key."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import httpx

from tests.chaos.campaign_stack import UNREACHABLE_LIMIT_S, aside
from tests.chaos.job import RoomJob, Script, counting
from tests.chaos.kinds import Missed, Scene, kind
from tests.chaos.leftovers import RUNS, beats
from tests.e2e.platform import Refused

BACK_S = 120.0
CUT_SHORT_S = (1.0, 9.0)
OFFLINE_S = 300.0
"""Until its loss is known, although processes of ours are killed meanwhile, time and again."""
LOOK_S = 2.0
TOLD_S = 120.0


async def until_node(scene: Scene, *statuses: str, limit_s: float = BACK_S) -> None:
    """Raises: TimeoutError, with what the node is instead."""
    owner, path = scene.place.site.platform, scene.place.node
    await aside(lambda: owner.until_status(path, *statuses, limit_s=limit_s))


async def jobs_end(scene: Scene, jobs: Sequence[RoomJob], limit_s: float = 300.0) -> None:
    await scene.until(lambda: all(job.has_ended for job in jobs), "its jobs have ended", limit_s)


# ── power ──────────────────────────────────────────────────────────────────────────────────


async def cut_power(scene: Scene) -> None:
    """Off, and on again after a while; each job goes on or fails as its files on the disk say."""
    room, place = scene.room, scene.place
    jobs = room.at(place)
    with scene.touching(jobs):
        await aside(place.machine.power_cut)
        judge_by_disk(scene, jobs)
        await asyncio.sleep(scene.dice.uniform(0.0, 12.0))
        place.machine.boot()
        await until_active(scene)
        await jobs_end(scene, jobs)


def judge_by_disk(scene: Scene, jobs: Sequence[RoomJob]) -> None:
    """What had begun and not ended is lost, with its log and the seconds of its last beat.

    What had not begun runs, once; what had ended is as it was.
    """
    disk = scene.room.disk(scene.place)
    lost = beats(disk)
    for job in jobs:
        for run_id, beat_s in lost.items():
            if run_id.startswith(f"{job.id}-"):
                job.breaks_off(beat_s, attempt=int(run_id.removeprefix(f"{job.id}-").split("-")[1]))
                log = disk / RUNS / run_id / "log"
                job.least_log_bytes = log.stat().st_size if log.exists() else 0


async def until_active(scene: Scene) -> None:
    """It was noticed or not that the node was away: it takes jobs again."""
    await asyncio.sleep(LOOK_S)
    await until_node(scene, "active")


@kind("machine", 2)
async def power_cut_running(scene: Scene) -> None:
    await scene.a_job(90, "running")
    await cut_power(scene)


@kind("machine")
async def power_cut_staging(scene: Scene) -> None:
    await scene.room.submit(scene.place, counting(5, 0.2), environment=slow_to_stage(scene))
    await scene.a_job(60, "waiting_for_data")
    await asyncio.sleep(scene.dice.uniform(0.0, 1.5))
    await cut_power(scene)


@kind("machine")
async def power_cut_output(scene: Scene) -> None:
    await scene.room.submit(scene.place, large_output())
    await scene.a_job(90, "uploading")
    await cut_power(scene)


def slow_to_stage(scene: Scene) -> dict[str, list[str]]:
    """Packages that are built anew: the node's cache of them is thrown away."""
    scene.place.machine.run("rm", "-rf", "/var/lib/baseload/packages")
    return {"python_packages": ["labgreet"]}


def large_output() -> Script:
    body = 'head -c 30000000 /dev/urandom > "$BASELOAD_OUTPUT/big"; echo written'
    return Script(body, b"written\n")


# ── the way to it ──────────────────────────────────────────────────────────────────────────


@kind("machine", 4)
async def network_cut_short(scene: Scene) -> None:
    """A cable that is loose for some seconds: nobody should be any the wiser."""
    await scene.a_job(90, "running", "waiting_for_data", "uploading")
    scene.inject(scene.room.at(scene.place))
    scene.place.machine.cut_network()
    await asyncio.sleep(scene.dice.uniform(*CUT_SHORT_S))
    scene.place.machine.heal_network()
    await until_active(scene)


@kind("machine")
async def network_cut_beyond_limit(scene: Scene) -> None:
    """Longer than jobs wait: what ran is given up, goes on unseen, and is ended and billed."""
    await scene.a_job(90, "running")
    async with scene.place.filling:  # a job that comes meanwhile would be given up as well
        jobs = scene.room.at(scene.place)
        with scene.touching(jobs):
            scene.place.machine.cut_network()
            for job in jobs:
                job.may("failed")
                job.strays = True
                scene.room.strays.add(job.id)
            try:
                await until_node(scene, "offline", limit_s=OFFLINE_S)
                await asyncio.sleep(UNREACHABLE_LIMIT_S + 5)
            finally:
                scene.place.machine.heal_network()
            await until_active(scene)
            await jobs_end(scene, jobs)


@kind("machine", 5)
async def sshd_restarted(scene: Scene) -> None:
    """With or without its sessions."""
    await scene.a_job(90, "running", "waiting_for_data", "uploading")
    scene.inject(scene.room.at(scene.place))
    drop = scene.dice.random() < 0.7
    await aside(lambda: scene.place.machine.restart_sshd(drop_sessions=drop))
    await until_active(scene)


@kind("machine")
async def host_key_changed(scene: Scene) -> None:
    """Something else answers in its place: refused, a person is told, jobs are not touched."""
    machine = scene.place.machine
    await scene.a_job(90, "running")
    jobs = scene.room.at(scene.place)
    own = machine.key
    told_before = await refusals_told(scene)
    with scene.touching(jobs):
        await aside(machine.change_host_key)
        try:
            await aside(lambda: machine.restart_sshd(drop_sessions=True))
            await until_node(scene, "offline", limit_s=OFFLINE_S)
            # Its sshd was away for a moment: that may have been seen first.
            await people_are_told(scene, told_before)
        finally:
            await aside(machine.use_host_key, own)
        await announce(scene)
        await until_active(scene)
        await jobs_end(scene, jobs)


async def refusals_told(scene: Scene) -> int:
    """How often an event of the node has said that another host key answered."""
    told = await aside(scene.room.platform.events, scene.place.node)
    return told.count("node.host-key-refused")


async def people_are_told(scene: Scene, before: int) -> None:
    """The node says so within a while; else it is something left undone."""
    deadline = time.monotonic() + TOLD_S
    while await refusals_told(scene) <= before:
        if time.monotonic() > deadline:
            scene.room.tally.wrong(scene.kind.name, "left", "nobody was told of the host key")
            return
        await asyncio.sleep(1)


async def announce(scene: Scene) -> None:
    """A person runs join.sh again, until it has been heard."""
    for _ in range(60):
        with contextlib.suppress(RuntimeError, httpx.TransportError, Refused):
            await aside(scene.place.site.announce, scene.place.machine)
            return
        await asyncio.sleep(1)
    raise Missed(f"{scene.place.name}: could not be announced")
