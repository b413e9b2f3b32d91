"""What pending activities say in their heartbeats, read by whoever wants to know now.

Temporal keeps the details of the last heartbeat alone: so they cost nothing until somebody reads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar

from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError

from activities.temporal.client import client

Found = TypeVar("Found")
LIMIT_S = 3.0
"""How long a reader waits; what has not come by then is left out."""
AT_ONCE = 16
KEPT_S = 5.0
MOST_KEPT = 4096


class HeartbeatReader(Generic[Found]):
    """The reader of one process, which asks Temporal of a workflow once in a few seconds.

    read: what a workflow's description says; None: nothing.
    """

    def __init__(
        self, read: Callable[[WorkflowExecutionDescription], Awaitable[Found | None]]
    ) -> None:
        self._read = read
        self._kept: dict[str, tuple[float, Found | None]] = {}

    async def of(self, workflow_ids: Collection[str]) -> dict[str, Found]:
        """What is said in these workflows, by their ids; a silent one is left out."""
        if len(self._kept) > MOST_KEPT:
            self._kept.clear()
        since_s = time.monotonic() - KEPT_S
        new = [each for each in workflow_ids if self._kept.get(each, (0.0, None))[0] <= since_s]
        await self._ask(new)
        found = {each: self._kept.get(each, (0.0, None))[1] for each in workflow_ids}
        return {each: last for each, last in found.items() if last is not None}

    async def _ask(self, workflow_ids: Collection[str]) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(workflow_id: str) -> None:
            async with turns:
                found = await self._last_of(workflow_id)
            self._kept[workflow_id] = time.monotonic(), found

        if not workflow_ids:
            return
        tasks = [asyncio.create_task(ask(each)) for each in workflow_ids]
        _, late = await asyncio.wait(tasks, timeout=LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _last_of(self, workflow_id: str) -> Found | None:
        try:
            found = await client().get_workflow_handle(workflow_id).describe()
        except (RPCError, RuntimeError):
            return None
        return await self._read(found)


async def details_of(
    found: WorkflowExecutionDescription, activities: Collection[str]
) -> list[list[str]]:
    """The details of the last heartbeat of each pending activity with one of these names."""
    said = []
    for pending in found.raw_description.pending_activities:
        payloads = list(pending.heartbeat_details.payloads)
        if pending.activity_type.name in activities and payloads:
            kinds: list[type] = [str] * len(payloads)
            said.append(list(await client().data_converter.decode(payloads, kinds)))
    return said
