"""10,000 jobs that wait: what they cost, and how fast the next is placed once there is room."""

import asyncio
import statistics

from tests.bench.machine import MIB, memory_bytes, share_of
from tests.bench.measure import Row, ms
from tests.bench.stack import Bench, scaled, simulated, stack
from tests.lab.waiting import wait_until

WAITING = 10_000
SLOTS = 64
LOOKED_AT_S = 20.0
FREED = 5
AIM_S = 1.0


def rows() -> list[Row]:
    """One machine whose slots are all taken; then one slot after another becomes free."""
    with simulated(1) as machines, stack() as bench:
        bench.join(machines.machines)
        asyncio.run(bench.submit([bench.job("sleep 100000")] * SLOTS))
        bench.until_jobs(SLOTS, "running")
        empty = _memory(bench)
        waiting = scaled(WAITING)
        asyncio.run(bench.submit([bench.job("sleep 100000")] * waiting))
        bench.until_jobs(waiting, "waiting_for_resources", limit_s=1800)
        idle = share_of(bench.pids(), LOOKED_AT_S)
        placed_s = [_place_next(bench) for _ in range(FREED)]
    p50_s = statistics.median(placed_s)
    return [
        Row(
            f"{waiting:,} jobs waiting: CPU and memory of all processes",
            str(idle),
            f"with none waiting: {empty / MIB:,.0f} MiB",
        ),
        Row(
            f"{waiting:,} jobs waiting: from a slot's release to the next job's place",
            ms(p50_s),
            f"slowest of {FREED}: {ms(max(placed_s))}",
            "< 1 s",
            p50_s < AIM_S,
        ),
    ]


def _memory(bench: Bench) -> int:
    return sum(memory_bytes(pid) for pid in bench.pids())


def _place_next(bench: Bench) -> float:
    """Seconds between the release of a place and the reservation of what took it, by its rows."""
    query = "SELECT id, job_id FROM allocations WHERE released_at IS NULL ORDER BY id LIMIT 1"
    allocation_id, job_id = bench.asked(query)[0]
    (newest,) = bench.asked("SELECT max(id) FROM allocations")[0]
    bench.platform.post(f"/v1/jobs/{job_id}/cancel")
    query = f"SELECT created_at FROM allocations WHERE id > '{newest}' AND notified_at IS NOT NULL"
    wait_until(lambda: bench.asked(query), "the next is placed", 60)
    span = (
        "SELECT (julianday(later.notified_at) - julianday(freed.released_at)) * 86400.0 "
        "FROM allocations AS later, allocations AS freed "
        f"WHERE freed.id = '{allocation_id}' AND later.id > '{newest}'"
    )
    return float(bench.asked(span)[0][0])
