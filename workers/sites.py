"""The worker processes of sites, which reach the nodes of regions: one queue for each region."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.registry.site import SITE
from activities.settings import Settings, settings
from activities.site.node_client import close_connections
from activities.temporal.client import set_client
from workers.client import connect_until, measured
from workers.process import GRACE_S
from workflows.contracts import queues

SITES_INTERVAL_S = 0.5
LONG_ACTIVITIES = 1000
"""How many activities that wait for a node or a provider one worker runs at once."""
LONG_ACTIVITY_HEARTBEAT = timedelta(seconds=4)
"""The longest interval between two heartbeats that are sent to the server.

A cancellation reaches an activity with its next heartbeat; the library's default sends fewer.
"""

log = structlog.get_logger("worker")


async def serve_sites(stop: asyncio.Event) -> int:
    """Serve the queues of the named regions from inside their network, without a database.

    `BASELOAD_SITES=*` is refused, because only the database knows all regions.
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


def site_worker(client: Client, region_id: str) -> Worker:
    """The worker of one region's queue; it opens no database."""
    return Worker(
        client,
        task_queue=queues.site(region_id),
        activities=SITE,
        max_concurrent_activities=LONG_ACTIVITIES,
        max_heartbeat_throttle_interval=LONG_ACTIVITY_HEARTBEAT,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(2),
        graceful_shutdown_timeout=timedelta(seconds=GRACE_S),
    )


class Sites:
    """The workers for the queues of the regions that this process serves, as regions come and go.

    all_regions: reads the ids of all open regions from the database; None in a process without a
    database, which serves the regions that its settings name.
    """

    def __init__(
        self,
        client: Client,
        chosen: Settings,
        all_regions: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._client = client
        names = frozenset(name for name in chosen.sites.split(",") if name)
        self._all_regions = all_regions if "*" in names else None
        self._left_out = frozenset(name[1:] for name in names if name.startswith("-"))
        self._named = frozenset(name for name in names if name[0] not in "*-")
        self._workers: dict[str, tuple[Worker, asyncio.Task[None]]] = {}

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until stopped, and start and end workers as regions come and go."""
        while not stop.is_set():
            await self._update(await self.wanted())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), SITES_INTERVAL_S)
        await self._end(tuple(self._workers))

    async def wanted(self) -> frozenset[str]:
        """The ids of the regions to serve; a site in a customer's network reads no database."""
        if self._all_regions is None:
            return self._named
        return frozenset(await asyncio.to_thread(self._all_regions)) - self._left_out

    async def _update(self, wanted: frozenset[str]) -> None:
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
