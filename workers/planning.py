"""The planning process: rules that use the CPU, away from everything that waits.

A module of its own, since it needs neither SSH nor workflows, which take longest to load.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio.worker import Worker

from activities.registry.planning import PLANNING
from workers.process import GRACE_S
from workers.startup import begin, run_worker
from workflows.contracts import queues

THREADS = 4


async def serve_planning(stop: asyncio.Event) -> int:
    """Serve the planning queue until stopped; the exit status."""
    client = await begin(stop)
    if client is None:
        return 0
    with ThreadPoolExecutor(THREADS, "planning") as rows:
        planning = Worker(
            client,
            task_queue=queues.PLANNING,
            activities=PLANNING,
            activity_executor=rows,
            max_concurrent_activities=THREADS,
            graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
        )
        await run_worker(stop, planning)
    return 0
