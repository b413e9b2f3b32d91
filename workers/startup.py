"""The start of a worker process, and how long it serves."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.worker import Worker

from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import register
from activities.settings import settings
from activities.temporal.client import set_client
from workers.client import connect_until
from workers.database import prepare_database

log = structlog.get_logger("worker")


async def start_worker_process(
    stop: asyncio.Event, runtime: Runtime | None = None
) -> Client | None:
    """Wait for the database and Temporal, and connect to them; None if stopped first."""
    register(KINDS)
    if not await prepare_database(stop):
        return None
    client = await connect_until(settings(), stop, runtime)
    if client is not None:
        set_client(client)
    return client


async def run_worker(
    stop: asyncio.Event, worker: Worker, beside: Coroutine[Any, Any, None] | None = None
) -> None:
    """Run a worker until stopped. A failed worker ends the process, which the runner restarts.

    beside: a coroutine that runs as long as the worker serves, and ends by itself when stopped.
    """
    running = [asyncio.create_task(worker.run(), name=worker.task_queue)]
    if beside is not None:
        running.append(asyncio.create_task(beside, name="beside"))
    log.info("serves", queue=worker.task_queue)
    stopped = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(worker.shutdown(), *running[1:], return_exceptions=True)
    stopped.cancel()
    for task in done - {stopped}:
        task.result()
