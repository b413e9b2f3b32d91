"""The workers of sites, which reach nodes: one for all shared regions, one for each own worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.registry.site import SITE, WATCHES
from activities.settings import settings
from activities.site.device_watches import take_over_watches
from activities.site.node_client import close_connections
from activities.site.sessions.trunks import close_trunks
from activities.temporal.client import set_client
from workers.client import connect_until, measured
from workers.process import GRACE_S
from workers.serving import serving
from workflows.contracts import queues

SHARED = "*"
SHARED_POLLERS = 8
SITE_ACTIVITIES = 50_000
"""How many activities the worker of a site runs at once, each of which waits for a node or a device
and needs no thread; every node has one for hours, its watch. The watches of devices have as many
slots of their own."""
LONG_ACTIVITIES = 1000
"""How many activities that wait for a provider one other worker runs at once."""
LONG_ACTIVITY_HEARTBEAT = timedelta(seconds=4)
"""The longest interval between two heartbeats that are sent to the server.

A cancellation reaches an activity with its next heartbeat; the library's default sends fewer.
"""

log = structlog.get_logger("worker")


async def serve_sites(stop: asyncio.Event) -> int:
    """Serve the queues of the named regions from inside their network, without a database.

    `BASELOAD_SITES=*` is refused, because from there the shared regions cannot be reached.
    """
    if SHARED in settings().sites:
        log.error("name the regions: BASELOAD_SITES=reg-…,reg-…", sites=settings().sites)
        return 1
    workers = site_queues(settings().sites)
    client = await connect_until(settings(), stop, measured(settings()))
    if client is None:
        return 0
    set_client(client)
    async with (
        serving(*(worker for queue in workers for worker in site_workers(client, queue))),
        taking_over(client, workers),
    ):
        await stop.wait()
    await close_trunks()
    await close_connections()
    return 0


@contextlib.asynccontextmanager
async def taking_over(client: Client, queues_of_sites: Sequence[str]) -> AsyncIterator[None]:
    """Take over the watches of devices that a killed process of these queues has left, beside the
    block."""
    tasks = [asyncio.create_task(take_over_watches(client, each)) for each in queues_of_sites]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def site_queues(sites: str) -> tuple[str, ...]:
    """The task queues that the setting `BASELOAD_SITES` names: `*` all shared regions, an id one
    region with a worker of its own.

    Raises: ValueError, for a name that is neither.
    """
    names = [name for name in sites.split(",") if name]
    if wrong := [name for name in names if name != SHARED and not name.startswith("reg-")]:
        raise ValueError(
            f"BASELOAD_SITES: {wrong[0]} is neither * nor the id of a region (a region is left to "
            "a worker of its own network by own_worker of the region)"
        )
    return tuple(queues.SITE if name == SHARED else queues.own_site(name) for name in names)


def site_workers(client: Client, queue: str) -> tuple[Worker, Worker]:
    """The worker of a site's queue, and that of the watches of its devices."""
    watches = Worker(
        client,
        task_queue=queues.watches_of(queue),
        activities=WATCHES,
        max_concurrent_activities=SITE_ACTIVITIES,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )
    return site_worker(client, queue), watches


def site_worker(client: Client, queue: str) -> Worker:
    """The worker of the queue of all shared regions or of one region; it opens no database."""
    is_shared = queue == queues.SITE
    return Worker(
        client,
        task_queue=queue,
        activities=SITE,
        max_concurrent_activities=SITE_ACTIVITIES,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(
            SHARED_POLLERS if is_shared else 2
        ),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )
