"""The jobs that are kept running: most of them plain, and a small share of each other sort."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.chaos.job import FAILING_RETRIES, RoomJob, counting, failing_first, serving
from tests.chaos.sessions import ON_A_PORT, WAYS, Client, wrong_with
from tests.chaos.tally import NO_FAULT
from tests.e2e.platform import Refused, Resource

if TYPE_CHECKING:
    from tests.chaos.campaign_stack import Place, Room

JOBS_OF_A_PLACE = 2
LOOK_S = 0.5
ARRAY_JOBS = 2
STARTED_S = 300.0
FIRST_PORT, PORTS = 9000, 500
Sort = Callable[["Room", "Place", random.Random], Awaitable[object]]


async def fill(room: Room, place: Place, seed: int) -> None:
    """Keep its jobs running, each a bit different, for as long as the room is open."""
    dice = random.Random(f"{seed}/workload/{place.name}")
    bag: list[Sort] = []
    while True:
        await asyncio.sleep(LOOK_S)
        if room.filling and len(room.at(place)) < JOBS_OF_A_PLACE:
            async with place.filling:
                if room.filling:
                    if not bag:
                        bag = [*SORTS, *[plain] * PLAIN]
                        dice.shuffle(bag)
                    sort = bag.pop()
                    room.tally.workload[sort.__name__] += 1
                    await sort(room, place, dice)


async def plain(room: Room, place: Place, dice: random.Random) -> None:
    await room.submit(place, counting(dice.randint(8, 20), 0.3))


async def array(room: Room, place: Place, dice: random.Random) -> None:
    """Several jobs of one submission, which is sent twice: each of them is there once."""
    script = counting(dice.randint(5, 9), 0.3)
    key, owner = str(uuid4()), place.site.platform
    body = {
        "name": f"array-{key[:8]}",
        "type": "training",
        "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
        "workers": [{"command": script.command}],
        "placement": {"region_id": place.site.region_id},
        "array": ARRAY_JOBS,
    }
    path = "/v1/jobs/arrays"
    answers = [await asyncio.to_thread(posted, owner.post, path, body, key) for _ in range(2)]
    sent = [[each["id"] for each in answer["jobs"]] for answer in answers]
    for job_id in sorted({one for made in sent for one in made}):
        room.follow_job(job_id, place, script)
    if sent[0] != sent[1] or len(set(sent[0])) != ARRAY_JOBS:
        room.tally.wrong(NO_FAULT, "doubled", f"one array of {ARRAY_JOBS} made {sent}")


def posted(post: Callable[..., Resource], path: str, body: Resource, key: str) -> Resource:
    """The answer; one that says that the same is being answered is asked again."""
    while True:
        try:
            return post(path, body, key)
        except Refused as refused:
            if refused.status != 409:
                raise


async def retried(room: Room, place: Place, dice: random.Random) -> None:
    """Its command fails by itself the first time, and is tried again."""
    script = failing_first(dice.randint(4, 9), 0.3)
    job = await room.submit(place, script, safety={"max_retries": FAILING_RETRIES})
    job.retries = FAILING_RETRIES


async def discarded(room: Room, place: Place, dice: random.Random) -> None:
    """Canceled while it runs, by somebody who does not want its output."""
    job = await room.submit(place, counting(40, 0.3))
    job.may("canceled")
    job.is_discarded = True
    room.accompany(_discard(room, place, job, dice.uniform(0.0, 6.0)))


async def _discard(room: Room, place: Place, job: RoomJob, after_s: float) -> None:
    if await has_started(job):
        await asyncio.sleep(after_s)
        path = f"{job.path}/cancel?discard=true"
        await asyncio.to_thread(ask_quietly, place.site.platform.post, path)


async def reached(room: Room, place: Place, dice: random.Random) -> None:
    """Somebody has a session in it, which ends by itself or with the job."""
    way, port = dice.choice(WAYS), FIRST_PORT + dice.randrange(PORTS)
    if way not in ON_A_PORT:
        job = await room.submit(place, counting(45, 0.3))
        room.accompany(_reach(room, job, way, port))
        return
    job = await room.submit(place, serving(port), type="notebook", port=port)
    job.is_service = True
    job.allowed = {"canceled"}
    job.held += 1  # Until it has ended for good: it is stopped when its command ends.
    room.accompany(_reach_service(room, place, job, way, port))


async def _reach(room: Room, job: RoomJob, way: str, port: int) -> None:
    if not await has_started(job):
        return
    ended = await Client(room.stack).reach(way, job.id, port)
    fault = job.faults[-1] if job.faults else NO_FAULT
    how = "whole" if ended.whole else f"{ended.said[-150:]!r}"
    room.tell(f"session by {ended.way}: exit {ended.code}, {how}")
    room.tally.workload[f"{way} {'whole' if ended.whole else 'broken off'}"] += 1
    for what, message in wrong_with(ended):
        room.tally.wrong(fault, what, f"{job.id} on {job.place}, after {job.faults}: {message}")
        room.tell(f"WRONG {room.tally.found[-1]}")


async def _reach_service(room: Room, place: Place, job: RoomJob, way: str, port: int) -> None:
    try:
        await _reach(room, job, way, port)
        for _ in range(int(STARTED_S / LOOK_S)):
            if job.has_ended and job.status != "stopped":
                break
            await asyncio.to_thread(ask_quietly, place.site.platform.post, f"{job.path}/cancel")
            await asyncio.sleep(LOOK_S)
    finally:
        job.held -= 1


async def has_started(job: RoomJob) -> bool:
    """Whether it runs before it has ended, or is given up as stuck."""
    for _ in range(int(STARTED_S / LOOK_S)):
        if job.is_running or job.has_ended:
            break
        await asyncio.sleep(LOOK_S)
    return job.is_running


def ask_quietly(post: Callable[..., Any], path: str) -> None:
    """What does not fit its state is refused, as it should be."""
    try:
        post(path)
    except Refused:
        return


SORTS: tuple[Sort, ...] = (array, retried, discarded, reached, reached)
PLAIN = 8
"""So many plain jobs for one of each of these."""
