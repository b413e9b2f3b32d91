"""What people do, at the wrong moment, twice, or fifty times at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Any
from uuid import uuid4

from tests.chaos.campaign_stack import aside
from tests.chaos.job import counting
from tests.chaos.kinds import Scene, kind
from tests.chaos.machines import announce, jobs_end, until_node
from tests.chaos.verdicts import CPU_SECOND_MICROCREDITS
from tests.chaos.workload import ask_quietly, posted
from tests.e2e.platform import Refused

AT_ONCE = 50
REMOVED_S = 180.0


@kind("people", 2)
async def submitted_fifty_times_at_once(scene: Scene) -> None:
    """One key, fifty requests: one job."""
    room, place = scene.room, scene.place
    script, key = counting(6, 0.3), str(uuid4())
    body = {
        "name": "once",
        "type": "training",
        "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
        "workers": [{"command": script.command}],
        "placement": {"region_id": place.site.region_id},
    }
    async with place.filling:  # as in `Scene.submit`
        answers = await asyncio.gather(
            *(aside(posted, room.platform.post, "/v1/jobs", body, key) for _ in range(AT_ONCE))
        )
        made = sorted({answer["id"] for answer in answers})
        jobs = [room.follow_job(name, place, script) for name in made]
    with scene.touching(jobs):
        if len(made) != 1:
            room.tally.wrong(scene.kind.name, "doubled", f"one submission made {made}")
        await jobs_end(scene, jobs)


@kind("people", 5)
async def cancel_races_finish(scene: Scene) -> None:
    """Canceled about when it ends by itself: it is one of the two, and wholly."""
    job = await scene.submit(counting(5, 0.2))
    with scene.touching([job]):
        job.may("canceled")
        await scene.until(lambda: job.is_running or job.has_ended, "it runs", 300)
        await asyncio.sleep(scene.dice.uniform(0.0, 2.5))
        with contextlib.suppress(Refused):
            await aside(scene.room.platform.post, f"{job.path}/cancel")
        await jobs_end(scene, [job])


@kind("people", 2)
async def stop_races_start(scene: Scene) -> None:
    """A notebook is told to stop and to start again, all at once; then it is canceled."""
    platform = scene.room.platform
    service: dict[str, Any] = {"type": "notebook", "port": 8888}
    job = await scene.submit(counting(2000, 0.3), **service)
    with scene.touching([job]):
        job.allowed = {"canceled"}
        for _ in range(3):
            await scene.until(
                lambda: job.has_ended or job.status in ("running", "stopped"),
                "it runs or rests",
                300,
            )
            if job.has_ended:  # Its machine went meanwhile: whoever took it says that it may.
                break
            verbs = scene.dice.sample(("stop", "start", "stop", "start"), 4)
            paths = [f"{job.path}/{verb}" for verb in verbs]
            await asyncio.gather(*(aside(ask_quietly, platform.post, path) for path in paths))
            await asyncio.sleep(scene.dice.uniform(0.0, 2.0))
        await aside(ask_quietly, platform.post, f"{job.path}/cancel")
        await scene.until(
            lambda: job.has_ended and job.status != "stopped", "it has ended for good", 300
        )
        job.attempts = int(job.row["attempt"])


@kind("people")
async def same_node_added_twice(scene: Scene) -> None:
    """A machine that is a node is added again, twice at once: refused, and told whose it is."""
    site, machine = scene.place.site, scene.place.machine
    scene.inject(scene.room.at(scene.place))
    for answer in await asyncio.gather(
        *(aside(site.add, machine, name=f"again-{n}") for n in range(2)), return_exceptions=True
    ):
        if not isinstance(answer, Refused) or answer.status != 409:
            scene.room.tally.wrong(scene.kind.name, "doubled", f"the second node: {answer}")


@kind("machine")
async def node_removed_with_jobs(scene: Scene) -> None:
    """By force, while a job is placed there; then the machine is added again."""
    room, place, platform = scene.room, scene.place, scene.room.platform
    await scene.a_job(90, "running", "provisioning", "waiting_for_data")
    jobs = room.at(place)
    with scene.touching(jobs):
        for job in jobs:
            job.may("failed", "canceled")
        place.removed_until = math.inf
        await aside(platform.ask, "DELETE", place.node, params={"force": "true"})
        await until_node(scene, "archived", limit_s=REMOVED_S)
        place.removed_until = time.monotonic()
        await announce(scene)
        place.node = await aside(place.site.add, place.machine)
        await until_node(scene, "maintenance", limit_s=REMOVED_S)
        await aside(place.site.activate, place.node)
        await jobs_end(scene, jobs)


@kind("poor")
async def balance_used_up(scene: Scene) -> None:
    """The credits end in the middle of a job: it is ended, says why, and has paid what it ran."""
    room, place = scene.room, scene.place
    balance = (await aside(place.site.platform.get, "/v1/account"))["balance_microcredits"]
    spoon = scene.dice.randint(3, 9) * CPU_SECOND_MICROCREDITS
    await room.grant(room.poor_id, spoon - balance)
    job = await room.submit(place, counting(400, 0.3))
    with scene.touching([job]):
        job.allowed = {"failed"}
        await jobs_end(scene, [job])
        scene.expect_reason(job, "credits")
        if job.row["charged_microcredits"] < spoon:
            paid = job.row["charged_microcredits"]
            room.tally.wrong(scene.kind.name, "billed", f"{job.id}: ended at {paid} of {spoon}")
