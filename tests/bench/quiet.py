"""2,000 jobs that run quietly on 250 machines; their worker killed; 1,000 of them canceled."""

import asyncio
import os
import signal
import time

import httpx

from tests.bench.machine import Share, share_of
from tests.bench.measure import Row
from tests.bench.stack import Bench, Simulated, all_of_them, scaled, simulated, stack
from tests.lab.waiting import wait_until

MACHINES = 250
JOBS = 2000
CANCELED = 1000
SETTLED_S = 15.0
LOOKED_AT_S = 40.0
CPU_AIM_CORES = 0.4
WATCHED_AIM_S = 15.0
CANCEL_AIM_S = 60.0


def rows() -> list[Row]:
    """Machines that are simulated over real SSH, in one process that is not counted."""
    jobs, count = scaled(JOBS), scaled(MACHINES)
    with simulated(count) as machines, stack() as bench:
        run_quietly(bench, machines, jobs)
        ours = share_of(bench.pids(), LOOKED_AT_S)
        worker = share_of(bench.pids("worker"), LOOKED_AT_S / 2)
        watched_s = _killed(bench, machines, count)
        bench.until_jobs(jobs, "running")
        cancel_s = asyncio.run(_cancel(bench, scaled(CANCELED)))
    what = f"{jobs:,} jobs running quietly on {count} nodes"
    return [
        _cpu_row(what, ours, worker),
        Row(
            f"{what}: all watched again after kill -9 of the worker",
            f"{watched_s:.1f} s",
            "",
            "< 15 s",
            watched_s < WATCHED_AIM_S,
        ),
        Row(
            f"{scaled(CANCELED):,} jobs canceled, to the last row",
            f"{cancel_s:.0f} s",
            "",
            "< 60 s",
            cancel_s < CANCEL_AIM_S,
        ),
    ]


def run_quietly(bench: Bench, machines: Simulated, jobs: int) -> None:
    """Make the machines nodes on which so many jobs run, and wait until nothing else happens."""
    count = len(machines.machines)
    bench.join(machines.machines, limit_s=900)
    asyncio.run(bench.submit([bench.job("sleep 100000")] * jobs))
    bench.until_jobs(jobs, "running", limit_s=1800)
    wait_until(lambda: machines.watched() == count, "all machines are watched", 60)
    time.sleep(SETTLED_S)


def _cpu_row(what: str, ours: Share, worker: Share) -> Row:
    return Row(
        f"{what}: CPU and memory of all processes",
        str(ours),
        f"the worker alone: {worker}",
        "< 40 % of a core",
        ours.cores < CPU_AIM_CORES,
    )


def _killed(bench: Bench, machines: Simulated, count: int) -> float:
    """Seconds from the worker's death until the last machine is watched again."""
    (pid,) = bench.pids("worker")
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    wait_until(lambda: machines.watched() < count, "the watches are gone", 30)
    wait_until(lambda: machines.watched() == count, "all are watched again", 300)
    return time.monotonic() - started


async def _cancel(bench: Bench, count: int) -> float:
    """Seconds from the first request until so many jobs are canceled."""
    query = f"SELECT id FROM jobs WHERE status = 'running' ORDER BY id LIMIT {count}"
    job_ids = [job_id for (job_id,) in bench.asked(query)]
    platform = bench.platform.http
    started = time.monotonic()
    async with httpx.AsyncClient(
        base_url=platform.base_url, headers=platform.headers, timeout=60
    ) as http:
        works = [http.post(f"/v1/jobs/{job_id}/cancel") for job_id in job_ids]
        for answer in await all_of_them(works, at_once=8):
            answer.raise_for_status()
    await asyncio.to_thread(bench.until_jobs, count, "canceled")
    return time.monotonic() - started
