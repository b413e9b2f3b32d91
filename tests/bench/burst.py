"""Jobs that fit nothing that is there: until each has a machine, and what is asked for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.bench.measure import Row
from tests.bench.stack import scaled
from tests.chaos.campaign_stack import aside
from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.markets.google import BOOT_S, CREATE_S, Google
from tests.lab.waiting import wait_until

JOBS = 20
AIM_S = 2.0
WHOLE_JOBS = 5
LIMIT_S = 300.0
BOOTS_LATER_S = 120.0
"""Whether machines can be logged in to is not measured, and would take this machine's CPUs."""


def rows() -> list[Row]:
    """Google's double makes a machine in half a second; it runs in this process."""
    return asyncio.run(_measured())


async def _measured() -> list[Row]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(JOBS + 4))
    google = Google()
    room = CloudRoom(lambda line: None, google)
    try:
        await room.open()
        calls = await aside(_calls_of_whole_jobs, room, google)
        return [await _burst(room, google), calls]
    finally:
        room.close()


async def _burst(room: CloudRoom, google: Google) -> Row:
    """From the first submission until the last machine runs, by the cloud's own meter."""
    jobs = scaled(JOBS)
    with google.cloud.lock:
        google.cloud.durations.ssh_s = BOOTS_LATER_S
        before = len(google.cloud.meter.charges)
    began = time.time()
    paths = await asyncio.gather(*(aside(_submitted, room) for _ in range(jobs)))
    submitted_s = time.time() - began
    await aside(wait_until, lambda: len(_charges(google, before)) >= jobs, "all machines", LIMIT_S)
    running_at = _charges(google, before)
    first_s, took_s = min(running_at) - began, max(running_at) - began
    for path in paths:
        await aside(room.platform.post, f"{path}/cancel")
    with google.cloud.lock:
        google.cloud.durations.ssh_s = BOOT_S
    await aside(wait_until, lambda: _is_over(room), "nothing is left", LIMIT_S)
    return Row(
        f"{jobs} jobs until all have a machine, a creation taking {CREATE_S:g} s",
        f"{took_s:.1f} s",
        f"all submitted after {submitted_s:.1f} s, the first machine runs after {first_s:.1f} s",
        f"< {AIM_S:g} s",
        took_s < AIM_S,
    )


def _calls_of_whole_jobs(room: CloudRoom, google: Google) -> Row:
    before = len(google.double.door.calls)
    jobs = scaled(WHOLE_JOBS)
    for _ in range(jobs):
        _submitted(room)
    wait_until(lambda: _is_over(room), "all jobs have ended and nothing is left", LIMIT_S)
    names = (name.rpartition(".") for name in google.double.door.calls[before:])
    calls = Counter(
        f"{noun.rpartition('.')[2]} {verb}" for noun, _, verb in names if noun.startswith("compute")
    )
    told = ", ".join(f"{count / jobs:.1f} {name}" for name, count in calls.most_common())
    return Row(
        "calls to Google for a job, from its machine's creation until it is gone",
        f"{calls.total() / jobs:.1f}",
        told,
    )


def _submitted(room: CloudRoom) -> str:
    job = room.market.job(room.enabled)
    return room.platform.job("sleep 1", room.enabled.region_id, resources=job["resources"])


def _charges(google: Google, before: int) -> list[float]:
    """When each machine that was made since has begun to run."""
    with google.cloud.lock:
        return [charge.started_at for charge in google.cloud.meter.charges[before:]]


def _is_over(room: CloudRoom) -> bool:
    live = room.rows("SELECT id FROM nodes WHERE type = 'ephemeral' AND status != 'archived'")
    open_jobs = room.rows("SELECT id FROM jobs WHERE status NOT IN ('finished', 'canceled')")
    return not live and not open_jobs and len(room.market.machines()) == len(room.enabled.storage)
