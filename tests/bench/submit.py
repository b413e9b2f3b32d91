"""Submissions over HTTP while jobs run on simulated machines."""

import asyncio
import time

from tests.bench.measure import Row, ms, share_below
from tests.bench.stack import scaled, simulated, stack

MACHINES = 10
RUNNING = 200
SUBMITTED = 1500
AT_ONCE = 8
RATE_AIM = 150.0
P95_AIM_S = 0.1


def rows() -> list[Row]:
    """What is submitted is placed, started and finished meanwhile, beside those that run."""
    with simulated(MACHINES) as machines, stack() as bench:
        bench.join(machines.machines)
        running = scaled(RUNNING, least=50)
        asyncio.run(bench.submit([bench.job("sleep 100000")] * running))
        bench.until_jobs(running, "running")
        bodies = [bench.job("true")] * scaled(SUBMITTED, least=500)
        started = time.perf_counter()
        times_s = asyncio.run(bench.submit(bodies, AT_ONCE))
        rate = len(bodies) / (time.perf_counter() - started)
        finished = bench.jobs("finished")
    p50_s, p95_s = share_below(times_s, 0.5), share_below(times_s, 0.95)
    return [
        Row(
            f"submissions accepted, {len(bodies):,} of {AT_ONCE} clients, {running} jobs running",
            f"{rate:.0f}/s",
            f"{finished} of them had finished by then",
            "≥ 150/s",
            rate >= RATE_AIM,
        ),
        Row(
            "answer to a submission, p50 and p95",
            f"{ms(p50_s)}, {ms(p95_s)}",
            "",
            "p95 < 100 ms",
            p95_s < P95_AIM_S,
        ),
    ]
