"""The planning process: runs the rules of placement, which use the CPU, apart from the main worker.

This is a module of its own, because planning needs neither SSH nor workflows, whose imports take
longest.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio.worker import Worker

from activities.registry.planning import PLANNING
from workers.process import GRACE_S
from workers.startup import run_until_stopped, serve, start_worker_process
from workflows.contracts import queues

THREADS = 4


async def serve_planning(stop: asyncio.Event) -> int:
    """Serve the planning queue until stopped, and return the exit status."""
    client = await start_worker_process(stop)
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
        await run_until_stopped(stop, serve(stop, planning))
    return 0
