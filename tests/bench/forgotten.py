"""Temporal loses all that it knows while 2,000 jobs run quietly: how soon all of it is adopted."""

import asyncio
import os
import signal
import time
from contextlib import suppress

from temporalio.client import Client
from temporalio.service import RPCError

from tests.bench.machine import cpu_s
from tests.bench.measure import Row
from tests.bench.quiet import JOBS, MACHINES, run_quietly
from tests.bench.stack import Bench, scaled, simulated, stack
from tests.lab.waiting import wait_until

ADOPTED_LIMIT_S = 1800.0
PAUSE_S = 0.5
COUNTED = ("JobLifecycle", "JobBilling", "NodeLifecycle")
"""The workflows that must run again; a job that is adopted has itself billed when it goes on."""


def rows() -> list[Row]:
    """The files of the engine are deleted; its runner starts it, and nobody else is touched."""
    jobs, count = scaled(JOBS), scaled(MACHINES)
    with simulated(count) as machines, stack() as bench:
        run_quietly(bench, machines, jobs)
        before = _cpu_s(bench, "worker")
        forgotten = time.monotonic()
        _forget(bench)
        first_s = asyncio.run(_all_run(bench, (1, 0, 0), forgotten))
        adopted_s = asyncio.run(_all_run(bench, (jobs, jobs, count), forgotten))
        wait_until(lambda: machines.watched() == count, "all machines are watched", 60)
        used = {"worker": _cpu_s(bench, "worker") - before, "Temporal": _cpu_s(bench, "temporal")}
        running = bench.jobs("running")
    if running != jobs:
        raise RuntimeError(f"of {jobs} jobs {running} run after the engine forgot them")
    parts = ", ".join(f"{name} {seconds / jobs * 1000:.0f}" for name, seconds in used.items())
    return [
        Row(
            f"the engine forgot everything: {jobs:,} jobs on {count} nodes adopted, each billed",
            f"{adopted_s:.0f} s",
            f"the first after {first_s:.0f} s; CPU ms a job: {parts}",
        )
    ]


def _forget(bench: Bench) -> None:
    """Kill Temporal; without its mark of a first start the runner discards its files."""
    (bench.running.home / "temporal" / "created").unlink()
    pid = bench.running.pid("temporal")
    assert pid is not None, "temporal does not run"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: bench.running.pid("temporal") not in (None, pid), "temporal runs again", 60)


async def _all_run(bench: Bench, counts: tuple[int, ...], since: float) -> float:
    """Seconds from `since` until so many workflows of each type run."""
    seen = [0] * len(counts)
    while not all(count >= wanted for count, wanted in zip(seen, counts, strict=True)):
        if time.monotonic() - since > ADOPTED_LIMIT_S:
            raise TimeoutError(f"{COUNTED}: {seen} of {counts} run")
        await asyncio.sleep(PAUSE_S)
        with suppress(RuntimeError, RPCError):  # It starts, and does not know its namespace yet.
            client = await bench.temporal()
            seen = [await _running(client, name) for name in COUNTED]
    return time.monotonic() - since


async def _running(client: Client, workflow: str) -> int:
    query = f"WorkflowType='{workflow}' AND ExecutionStatus='Running'"
    return (await client.count_workflows(query)).count


def _cpu_s(bench: Bench, name: str) -> float:
    return sum(cpu_s(pid) for pid in bench.pids(name))
