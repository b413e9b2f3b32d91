"""Jobs from submission to their last row, beside empty workflows with as many activities."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from tests.bench.empty import QUEUE, Empty, EmptyRequest
from tests.bench.measure import Row
from tests.bench.stack import Bench, all_of_them, scaled, simulated, stack
from tests.temporal_server import CHECKOUT

MACHINES = 10
JOBS = 300
AIM = 0.7


def rows() -> list[Row]:
    """On simulated machines with a slot for each job, all of them submitted at once."""
    jobs = scaled(JOBS, least=100)
    with simulated(MACHINES) as machines, stack() as bench:
        bench.join(machines.machines)
        started = time.perf_counter()
        asyncio.run(bench.submit([bench.job("true")] * jobs))
        bench.until_jobs(jobs, "finished")
        rate = jobs / (time.perf_counter() - started)
        with _empty_worker(bench):
            asked, empty_rate = asyncio.run(_empty(bench, jobs))
    return [
        Row(
            f"jobs complete, {jobs} on nodes with free slots",
            f"{rate:.1f}/s, {rate / empty_rate:.0%}",
            f"empty workflows with {asked.activities} activities and {asked.local_activities} "
            f"local ones: {empty_rate:.1f}/s",
            "≥ 70 %",
            rate / empty_rate >= AIM,
        )
    ]


async def _empty(bench: Bench, count: int) -> tuple[EmptyRequest, float]:
    """The empty workflow that a job is compared with, and how many of them end in a second."""
    client = await bench.temporal()
    (job_id,) = bench.asked("SELECT id FROM jobs WHERE status = 'finished' ORDER BY id LIMIT 1")[0]
    asked = await _activities(client, f"job/{job_id}", f"job/{job_id}/billing")
    await _run(client, asked, 1)
    started = time.perf_counter()
    await _run(client, asked, count)
    return asked, count / (time.perf_counter() - started)


@contextmanager
def _empty_worker(bench: Bench) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.empty", bench.running.temporal_address]
    worker = subprocess.Popen(command, cwd=CHECKOUT)
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


async def _run(client: Client, asked: EmptyRequest, count: int) -> None:
    works = [
        client.execute_workflow(Empty.run, asked, id=f"empty/{uuid4()}", task_queue=QUEUE)
        for _ in range(count)
    ]
    await all_of_them(works, at_once=100)


async def _activities(client: Client, *workflow_ids: str) -> EmptyRequest:
    """How many activities of each kind these workflows have asked for."""
    seen: Counter[int] = Counter()
    for workflow_id in workflow_ids:
        history = await client.get_workflow_handle(workflow_id).fetch_history()
        seen.update(event.event_type for event in history.events)
    return EmptyRequest(
        activities=seen[EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED],
        local_activities=seen[EventType.EVENT_TYPE_MARKER_RECORDED],
    )
