"""What all lifecycles share: numbered steps that are written down."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from workflows.contracts.events import Event
from workflows.contracts.lifecycles import Changes, Record
from workflows.effects.lifecycles import record

NODE_ID = SearchAttributeKey.for_keyword("NodeId")
REGION_ID = SearchAttributeKey.for_keyword("RegionId")
RESOURCE_STATUS = SearchAttributeKey.for_keyword("ResourceStatus")

EventWriter = Callable[[Event], Coroutine[Any, Any, None]]
"""Records an event of a resource that leaves its status as it is."""


class Journal:
    """Writes the steps of one resource in order; its number outlives continue-as-new."""

    def __init__(self, resource_id: str, account_id: str, sequence: int) -> None:
        self.resource_id = resource_id
        self.account_id = account_id
        self.sequence = sequence
        self.status = ""
        self.reason: str | None = None
        self._turn = asyncio.Lock()

    async def write(
        self, status: str, changes: Changes, *events: Event, reason: str | None = None
    ) -> None:
        """Status, reason, changes and events of one step, in one transaction.

        One after another: a later step that came first would make the earlier one void.
        """
        async with self._turn:
            await self._write(status, changes, events, reason)

    async def _write(
        self, status: str, changes: Changes, events: tuple[Event, ...], reason: str | None
    ) -> None:
        self.sequence += 1
        self._show(status, reason)
        step = Record(
            resource_id=self.resource_id,
            account_id=self.account_id,
            sequence=self.sequence,
            at=workflow.now(),
            status=status,
            status_reason=reason,
            events=events,
            changes=changes,
        )
        await record.run_locally(
            step, summary=f"{status}: {events[0].type if events else 'changed'}"
        )

    def _show(self, status: str, reason: str | None) -> None:
        if status != self.status:
            workflow.upsert_search_attributes([RESOURCE_STATUS.value_set(status)])
        self.status, self.reason = status, reason
        why = f"\n\n{reason}" if reason else ""
        workflow.set_current_details(f"**{status}** since step {self.sequence}{why}")
