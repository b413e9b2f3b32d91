"""The start of a worker process, and how long it serves."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import register
from activities.settings import settings
from activities.temporal.client import set_client
from activities.temporal.first_of import first_of
from workers.client import connect_until
from workers.database import prepare_database

PROBE_INTERVAL_S = 0.5
PROBE_LIMIT = timedelta(seconds=10)
POLL_LIMIT = timedelta(minutes=2)
"""Temporal answers a poll without a task after one minute at most."""
QUIET_QUEUE = "quiet"
"""A task queue without tasks."""
BROKEN = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN)
"""What the client says of a connection that has ended: UNKNOWN of one with a call on it."""

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


async def run_until_stopped(stop: asyncio.Event, *works: Coroutine[Any, Any, None]) -> None:
    """Run these until stopped; each ends by itself then.

    The first that ends earlier stops the others, and its failure ends the process, which the
    runner restarts.
    """
    running = [asyncio.create_task(work) for work in works]
    stopped = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(*running, return_exceptions=True)
    stopped.cancel()
    for task in done - {stopped}:
        task.result()


async def serve(stop: asyncio.Event, worker: Worker) -> None:
    """Serve a task queue until stopped."""
    log.info("serves", queue=worker.task_queue)
    async with worker:
        await stop.wait()


async def serve_workflows(
    stop: asyncio.Event, client: Client, new_worker: Callable[[], Worker]
) -> None:
    """Serve workflows until stopped, with a new worker whenever Temporal was away.

    Its files may have been restored meanwhile. The workflow runs in a worker's cache would then
    know more than their history, and never hear what is written there instead; a new worker has an
    empty cache, and begins each run anew from its history. Between two workers there is a pause,
    because Temporal may refuse polls for long although it is there.
    """
    while not stop.is_set():
        worker = new_worker()
        log.info("serves", queue=worker.task_queue)
        async with worker:
            await _until_away(client, stop)
        await _pause(stop)
        await _until_back(client, stop)


async def _until_away(client: Client, stop: asyncio.Event) -> None:
    await first_of(stop.wait(), _until_broken(client))


async def _until_broken(client: Client) -> None:
    """Until Temporal ends, however soon it is back: a poll that waits there breaks with it."""
    quiet = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=QUIET_QUEUE)
    )
    while True:
        try:
            await client.workflow_service.poll_workflow_task_queue(
                quiet, retry=False, timeout=POLL_LIMIT
            )
        except RPCError as error:
            if error.status in BROKEN:
                return
            await asyncio.sleep(PROBE_INTERVAL_S)


async def _until_back(client: Client, stop: asyncio.Event) -> None:
    while not stop.is_set() and not await _answers(client):
        await _pause(stop)


async def _pause(stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), PROBE_INTERVAL_S)


async def _answers(client: Client) -> bool:
    """Whether there is a Temporal; one that is only slow is there."""
    try:
        await client.service_client.check_health(timeout=PROBE_LIMIT)
    except RPCError as error:
        return error.status is not RPCStatusCode.UNAVAILABLE
    return True
