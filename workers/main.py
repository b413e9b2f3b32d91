"""The main worker process: every workflow; activities on rows, transfers, clouds and sites."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial

import structlog
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.artifacts.scratch import remove_left_scratch
from activities.leases.first_reconciliation import reconcile_all
from activities.providers.calls import CALLS_AT_ONCE
from activities.registry.cloud import CLOUD, RELEASES
from activities.registry.main import MAIN
from activities.registry.notifications import NOTIFICATIONS
from activities.registry.transfers import TRANSFERS
from activities.settings import settings
from activities.site.node_client import close_connections
from activities.site.sessions.trunks import close_trunks
from activities.temporal.singletons import ensure_singletons
from workers.backlogs import show_backlogs
from workers.client import ensure_search_attributes, measured
from workers.process import GRACE_S
from workers.registry import WORKFLOWS, workflow_runner
from workers.serving import serving
from workers.sites import (
    LONG_ACTIVITIES,
    LONG_ACTIVITY_HEARTBEAT,
    site_queues,
    site_workers,
    taking_over,
)
from workers.startup import run_until_stopped, serve_workflows, start_worker_process
from workflows.contracts import queues
from workflows.rules.catalogue.providers import cloud_kinds

ROW_THREADS = 32
TRANSFER_THREADS = 8
"""Transfers of artifacts at once, each of which may take hours."""
HANDED_BACK_AT_ONCE = 32
"""Activities beyond the slots for calls, each of which is handed back at once."""
LONGEST_SINGLETON_INTERVAL_S = 60
STICKY_FOR = timedelta(seconds=3)
"""How long a workflow waits for its worker, which may be dead, before another worker takes over."""

log = structlog.get_logger("worker")


async def serve_main(stop: asyncio.Event) -> int:
    """Serve the main queue and the sites until stopped, and return the exit status."""
    runtime = measured(settings())
    client = await start_worker_process(stop, runtime)
    if client is None:
        return 0
    with (
        ThreadPoolExecutor(ROW_THREADS, "rows") as rows,
        ThreadPoolExecutor(TRANSFER_THREADS, "transfers") as transfers,
    ):
        await run_until_stopped(
            stop,
            serve_workflows(stop, client, partial(main_worker, client, rows)),
            _beside(client, runtime, stop, transfers),
        )
    await close_trunks()
    await close_connections()
    return 0


def main_worker(client: Client, rows: ThreadPoolExecutor) -> Worker:
    """The worker of the main queue, with every workflow."""
    return Worker(
        client,
        task_queue=queues.MAIN,
        workflows=WORKFLOWS,
        activities=MAIN,
        activity_executor=rows,
        workflow_runner=workflow_runner(),
        max_concurrent_activities=ROW_THREADS,
        max_concurrent_local_activities=ROW_THREADS,
        sticky_queue_schedule_to_start_timeout=STICKY_FOR,
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


def notifications_worker(client: Client) -> Worker:
    """The worker that receives notifications; its activities need no CPU and no row thread."""
    return Worker(
        client,
        task_queue=queues.NOTIFICATIONS,
        activities=NOTIFICATIONS,
        max_concurrent_activities=LONG_ACTIVITIES,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


def transfers_worker(client: Client, threads: ThreadPoolExecutor) -> Worker:
    """The worker of transfers, which have slots and threads of their own."""
    return Worker(
        client,
        task_queue=queues.TRANSFERS,
        activities=TRANSFERS,
        activity_executor=threads,
        max_concurrent_activities=TRANSFER_THREADS,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


def cloud_workers(client: Client) -> list[Worker]:
    """The workers of all kinds of clouds; a kind that hangs has no slot and no thread of another.

    Releases have a worker of their own, so that none waits behind the other calls of its kind.
    """
    return [
        Worker(
            client,
            task_queue=queues.of_kind(queue, kind),
            activities=activities,
            max_concurrent_activities=CALLS_AT_ONCE + HANDED_BACK_AT_ONCE,
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
            graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
        )
        for kind in cloud_kinds()
        for queue, activities in ((queues.CLOUD, CLOUD), (queues.RELEASES, RELEASES))
    ]


async def _beside(
    client: Client, runtime: Runtime | None, stop: asyncio.Event, transfers: ThreadPoolExecutor
) -> None:
    """Serve all other queues beside the main one, until the process is stopped."""
    threading.Thread(target=remove_left_scratch, name="scratch", daemon=True).start()
    await _ensure_singletons(client)
    sites_served = site_queues(settings().sites)
    sites = [worker for queue in sites_served for worker in site_workers(client, queue)]
    long = (notifications_worker(client), transfers_worker(client, transfers))
    others = (*long, *cloud_workers(client), *sites)
    async with serving(*others), taking_over(client, sites_served):
        if runtime is not None:
            served = (queues.MAIN, queues.PLANNING, *(worker.task_queue for worker in others))
            await show_backlogs(client, runtime, served, stop)
        await reconcile_all()
        await _keep_singletons(client, stop)


async def _ensure_singletons(client: Client) -> None:
    await ensure_search_attributes(client)
    await ensure_singletons(client)


async def _keep_singletons(client: Client, stop: asyncio.Event) -> None:
    """Ensure the singletons again and again until stopped, because Temporal may lose its files.

    The reconciliation, which restarts all other workflows, is one of them.
    """
    interval_s = min(settings().reconciliation_interval_s, LONGEST_SINGLETON_INTERVAL_S)
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), interval_s)
            return
        try:
            await _ensure_singletons(client)
        except (RPCError, RuntimeError) as cause:
            log.warning("singletons were not ensured", why=str(cause))
