"""The workers of sites, which reach nodes: one for all shared regions, one for each own worker."""

import asyncio
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.registry.site import SITE
from activities.settings import settings
from activities.site.node_client import close_connections
from activities.site.sessions.trunks import close_trunks
from activities.temporal.client import set_client
from workers.client import connect_until, measured
from workers.process import GRACE_S
from workers.serving import serving
from workflows.contracts import queues

SHARED = "*"
SHARED_POLLERS = 8
SHARED_ACTIVITIES = 10_000
"""How many activities the worker of all shared regions runs at once, each of which waits for a node
and needs no thread; every node has one for hours, its watch."""
LONG_ACTIVITIES = 1000
"""How many activities that wait for a node or a provider one other worker runs at once."""
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
    async with serving(*(site_worker(client, queue) for queue in workers)):
        await stop.wait()
    await close_trunks()
    await close_connections()
    return 0


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


def site_worker(client: Client, queue: str) -> Worker:
    """The worker of the queue of all shared regions or of one region; it opens no database."""
    is_shared = queue == queues.SITE
    return Worker(
        client,
        task_queue=queue,
        activities=SITE,
        max_concurrent_activities=SHARED_ACTIVITIES if is_shared else LONG_ACTIVITIES,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(
            SHARED_POLLERS if is_shared else 2
        ),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )
