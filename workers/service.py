"""The worker processes: workflows and activities of the main queue, and those of every site."""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.regions.open_regions import open_region_ids
from activities.registry.main import MAIN
from activities.registry.notifications import NEWS
from activities.registry.site import SITE
from activities.settings import Settings, settings
from activities.site.node_client import close_connections
from activities.temporal.client import set_client
from workers.client import connect_until, ensure_search_attributes, measured
from workers.registry import WORKFLOWS, workflow_runner
from workers.serving import GRACE_S, begin, run_worker
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.schedules import SweepRequest

ROW_THREADS = 32
SITE_ACTIVITIES = 1000
HEARTBEAT_INTERVAL = timedelta(seconds=4)
"""Cancelling reaches an activity with its next heartbeat; the default passes on few of them."""
SITES_INTERVAL_S = 0.5
STICKY_FOR = timedelta(seconds=3)
"""How long workflows wait for a worker that was killed before another takes them up."""

SWEEP_INTERVAL = timedelta(minutes=5)
PRICES_INTERVAL = timedelta(days=1)

log = structlog.get_logger("worker")


async def serve_main(stop: asyncio.Event) -> int:
    """Serve the main queue and the sites until stopped; the exit status."""
    client = await begin(stop, measured(settings()))
    if client is None:
        return 0
    with ThreadPoolExecutor(ROW_THREADS, "rows") as rows:
        await run_worker(stop, main_worker(client, rows), _beside(client, stop))
    await close_connections()
    return 0


async def serve_sites(stop: asyncio.Event) -> int:
    """Serve the queues of chosen regions from inside their network; no database is opened.

    To serve all regions it would have to ask the database which there are: that is refused.
    """
    if "*" in settings().sites:
        log.error("name the regions: BASELOAD_SITES=reg-…,reg-…", sites=settings().sites)
        return 1
    client = await connect_until(settings(), stop, measured(settings()))
    if client is None:
        return 0
    set_client(client)
    await Sites(client, settings()).serve(stop)
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


def site_worker(client: Client, region_id: str) -> Worker:
    """The worker of one region's queue; it opens no database."""
    return Worker(
        client,
        task_queue=queues.site(region_id),
        activities=SITE,
        max_concurrent_activities=SITE_ACTIVITIES,
        max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


def news_worker(client: Client) -> Worker:
    """The worker that listens to providers; what it does takes no CPU, and no thread of rows."""
    return Worker(
        client,
        task_queue=queues.NEWS,
        activities=NEWS,
        max_concurrent_activities=SITE_ACTIVITIES,
        max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


async def _beside(client: Client, stop: asyncio.Event) -> None:
    """What this process has to do beside the main queue, until it is stopped."""
    await ensure_search_attributes(client)
    await start_singletons(client)
    async with news_worker(client):
        await Sites(client, settings()).serve(stop)


async def start_singletons(client: Client) -> None:
    """Placement, starts, and what comes by a schedule; all of them found when they are there."""
    loops: tuple[tuple[str, Contract, str], ...] = (
        ("Placement", PlacementRequest(), "placement"),
        ("Starts", SweepRequest(), "starts"),
    )
    for workflow, argument, name in loops:
        await client.start_workflow(
            workflow,
            argument,
            id=name,
            task_queue=queues.MAIN,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"the one {name} loop",
        )
    schedules = (
        ("Sweep", "sweep", SWEEP_INTERVAL),
        ("MachineSweep", "machine-sweep", SWEEP_INTERVAL),
        ("PriceRefresh", "prices", PRICES_INTERVAL),
    )
    for again, name, every in schedules:
        with contextlib.suppress(ScheduleAlreadyRunningError):
            await client.create_schedule(
                name,
                Schedule(
                    action=ScheduleActionStartWorkflow(
                        again, SweepRequest(), id=name, task_queue=queues.MAIN
                    ),
                    spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
                    policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
                ),
            )


class Sites:
    """A worker for the queue of each region that this process serves, as regions come and go."""

    def __init__(self, client: Client, chosen: Settings) -> None:
        self._client = client
        names = frozenset(name for name in chosen.sites.split(",") if name)
        self._all = "*" in names
        self._left_out = frozenset(name[1:] for name in names if name.startswith("-"))
        self._named = frozenset(name for name in names if name[0] not in "*-")
        self._workers: dict[str, tuple[Worker, asyncio.Task[None]]] = {}

    async def serve(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._follow(await self.wanted())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), SITES_INTERVAL_S)
        await self._end(tuple(self._workers))

    async def wanted(self) -> frozenset[str]:
        """Regions to serve. A site in a customer's network is told them and asks no database."""
        if not self._all:
            return self._named
        return await asyncio.to_thread(open_region_ids) - self._left_out

    async def _follow(self, wanted: frozenset[str]) -> None:
        for region_id in wanted - self._workers.keys():
            worker = site_worker(self._client, region_id)
            task = asyncio.create_task(worker.run(), name=worker.task_queue)
            self._workers[region_id] = (worker, task)
            log.info("serves", queue=worker.task_queue)
        for _, task in self._workers.values():
            if task.done():
                task.result()
        await self._end(tuple(self._workers.keys() - wanted))

    async def _end(self, region_ids: Sequence[str]) -> None:
        ending = [self._workers.pop(region_id) for region_id in region_ids]
        await asyncio.gather(*(worker.shutdown() for worker, _ in ending))
