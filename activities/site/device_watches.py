"""The watches of devices that a killed worker process has left, which the next process takes over.

Temporal would notice only after the heartbeat timeout of a watch, which is long.
"""

import asyncio
from datetime import timedelta

import structlog
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.site.devices import watched_devices
from activities.temporal.client import tell
from workflows.contracts import queues
from workflows.contracts.devices import DeviceStatus, WatchLost
from workflows.contracts.lifecycles import DEVICE

SETTLED_S = 1.0
LONGEST_S = 120
"""How long watches are waited for that come by themselves."""
SIGNALS_AT_ONCE = 32
TRIES = 5
PAUSE_S = 5.0
RESET_LIMIT = timedelta(seconds=10)
_WATCHED = ", ".join(f"'{each}'" for each in (DeviceStatus.ACTIVE, DeviceStatus.MAINTENANCE))

log = structlog.get_logger("watches")


async def take_over_watches(client: Client, queue: str) -> None:
    """Ask for the watches of the devices of this queue that this process does not watch.

    Called when the process has begun to serve the queue. The watches of a process that has ended
    properly come by themselves, and are waited for. Where several processes serve the queue, those
    that another one watches come to this one as well. One that still does not come is asked for
    again: Temporal may have handed it to the dead process, or have listed the device too late.
    """
    for _ in range(TRIES):
        await _until_settled()
        try:
            asked, left = await _ask_for_all(client, queue)
        except RPCError as cause:
            asked, left = 0, cause.message
        if left is not None:
            log.warning("watches were not taken over", queue=queue, why=left)
        elif asked == 0:
            return
        await asyncio.sleep(PAUSE_S)


async def _until_settled() -> None:
    """Wait while watches come by themselves."""
    before = -1
    for _ in range(LONGEST_S):
        if before == len(watched_devices()):
            return
        before = len(watched_devices())
        await asyncio.sleep(SETTLED_S)


async def _ask_for_all(client: Client, queue: str) -> tuple[int, str | None]:
    """Signal the devices that this process does not watch.

    Returns how many were signalled, and why one was not, or None.

    Raises: RPCError.
    """
    asked = 0
    slots = asyncio.Semaphore(SIGNALS_AT_ONCE)

    async def ask(workflow_id: str) -> str | None:
        nonlocal asked
        async with slots:
            if workflow_id.removeprefix(f"{DEVICE.name}/") in watched_devices():
                return None
            try:
                if queue == queues.SITE:  # Else the lifecycles run in another process, which lives.
                    await _leave_dead_worker(client, workflow_id)
                await tell(workflow_id, "watch_lost", WatchLost(queue=queues.watches_of(queue)))
            except (RPCError, ApplicationError) as cause:
                return f"{workflow_id}: {cause}"
            asked += 1
            return None

    query = f"WorkflowType = 'DeviceLifecycle' AND ExecutionStatus = 'Running' AND {_of(queue)}"
    found = [each.id async for each in client.list_workflows(query)]
    answers = await asyncio.gather(*map(ask, found))
    return asked, next((each for each in answers if each is not None), None)


async def _leave_dead_worker(client: Client, workflow_id: str) -> None:
    """Have any worker continue a lifecycle: Temporal would wait for its dead one for seconds.

    Raises: RPCError.
    """
    execution = WorkflowExecution(workflow_id=workflow_id)
    request = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
    try:
        await client.workflow_service.reset_sticky_task_queue(request, timeout=RESET_LIMIT)
    except RPCError as cause:
        if cause.status is not RPCStatusCode.NOT_FOUND:  # It has ended.
            raise


def _of(queue: str) -> str:
    """The condition for the devices of a queue; their lifecycles look at it once more."""
    is_served = f"ResourceStatus IN ({_WATCHED})"
    if queue == queues.SITE:
        return is_served
    return f"{is_served} AND RegionId = '{queue.partition('/')[2]}'"
