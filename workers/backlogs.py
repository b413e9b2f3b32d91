"""The backlog of each task queue: the activities that wait for a worker process."""

import asyncio
import contextlib
from collections.abc import Collection
from datetime import timedelta

import structlog
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError

INTERVAL_S = 15.0
ANSWER_LIMIT = timedelta(seconds=5)

log = structlog.get_logger("backlogs")


async def show_backlogs(
    client: Client, runtime: Runtime, queues: Collection[str], stop: asyncio.Event
) -> None:
    """Show the backlog of these queues as the metric `baseload_queue_backlog`, until stopped."""
    gauge = runtime.metric_meter.create_gauge(
        "baseload_queue_backlog", "Activities of a task queue that wait for a worker."
    )
    while not stop.is_set():
        for queue in queues:
            try:
                gauge.set(await backlog_of(client, queue), {"queue": queue})
            except RPCError as error:
                log.warning("backlog is not known", queue=queue, why=error.message)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), INTERVAL_S)


async def backlog_of(client: Client, queue: str) -> int:
    """How many activities wait on a task queue, about. Raises: RPCError."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    found = await client.workflow_service.describe_task_queue(asked, timeout=ANSWER_LIMIT)
    return found.stats.approximate_backlog_count
