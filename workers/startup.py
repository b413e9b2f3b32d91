"""The start of a worker process, and how long it serves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.worker import Worker

from activities.accounts.bootstrap import bootstrap
from activities.db.migrate import migrate
from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import register
from activities.settings import settings
from activities.temporal.client import set_client
from workers.client import connect_until

log = structlog.get_logger("worker")


async def start_worker_process(
    stop: asyncio.Event, runtime: Runtime | None = None
) -> Client | None:
    """Migrate the database, make the platform's keys, and connect to Temporal; None if stopped."""
    register(KINDS)
    chosen = settings()
    await asyncio.to_thread(migrate, chosen.database)
    await asyncio.to_thread(bootstrap)
    client = await connect_until(chosen, stop, runtime)
    if client is not None:
        set_client(client)
    return client


@contextlib.asynccontextmanager
async def serving(*workers: Worker) -> AsyncIterator[None]:
    """Run all these workers while the block runs."""
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        yield


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
