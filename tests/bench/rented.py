"""Jobs on as many rented machines: until all run, and what is asked of the marketplace for each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.bench.measure import Row
from tests.bench.stack import scaled
from tests.chaos.campaign_stack import aside
from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.markets.rented import RUNPOD, VASTAI, Rental, Rented
from tests.lab.waiting import wait_until

JOBS = 20
LIMIT_S = 400.0
NAMES = {"runpod": "RunPod", "vastai": "Vast.ai"}
PACE = {
    "runpod": "a pod takes 0.8 s",
    "vastai": "an instance takes 0.8 s, the pauses between calls are a fiftieth of Vast.ai's",
}
"""What the double takes, in the words of a row."""


def rows() -> list[Row]:
    """Machines are SSH servers of the double, whose jobs are processes of this machine."""
    return [row for rental in (RUNPOD, VASTAI) for row in asyncio.run(_measured(rental))]


async def _measured(rental: Rental) -> list[Row]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(JOBS + 4))
    market = Rented(rental)
    room = CloudRoom(lambda line: None, market)
    try:
        await room.open()
        return await _all_at_once(room, market)
    finally:
        room.close()


async def _all_at_once(room: CloudRoom, market: Rented) -> list[Row]:
    """From the first submission until every job runs, and on until no machine is left."""
    jobs, before = scaled(JOBS), len(market.double.calls)
    began = time.monotonic()
    paths = await asyncio.gather(*(aside(_submitted, room) for _ in range(jobs)))
    submitted_s = time.monotonic() - began
    await aside(wait_until, lambda: _running(room) >= 1, "one job runs", LIMIT_S)
    first_s = time.monotonic() - began
    await aside(wait_until, lambda: _running(room) >= jobs, "all jobs run", LIMIT_S)
    took_s, machines = time.monotonic() - began, len(market.machines())
    for path in paths:
        await aside(room.platform.post, f"{path}/cancel")
    await aside(wait_until, lambda: not market.machines(), "no machine is left", LIMIT_S)
    calls = Counter(market.double.calls[before:])
    name = NAMES[market.kind]
    return [
        Row(
            f"{jobs} jobs on {machines} machines of a simulated {name} until all run",
            f"{took_s:.1f} s",
            f"all submitted after {submitted_s:.1f} s, the first runs after {first_s:.1f} s; "
            f"{PACE[market.kind]}",
        ),
        Row(
            f"calls to {name} for a job, from its submission until its machine is gone",
            f"{calls.total() / jobs:.1f}",
            ", ".join(f"{count / jobs:.1f} {call}" for call, count in calls.most_common()),
        ),
    ]


def _submitted(room: CloudRoom) -> str:
    asked = room.market.job(room.enabled)
    return room.platform.job("sleep 900", room.enabled.region_id, **asked)


def _running(room: CloudRoom) -> int:
    return int(room.rows("SELECT COUNT(*) FROM jobs WHERE status = 'running'")[0][0])
