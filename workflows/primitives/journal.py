"""The journal of a lifecycle: its numbered steps, recorded in order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from workflows.contracts.events import Event
from workflows.contracts.lifecycles import Changes, Record, Recorded
from workflows.effects.lifecycles import record

LEASE_ID = SearchAttributeKey.for_keyword("LeaseId")
NODE_ID = SearchAttributeKey.for_keyword("NodeId")
REGION_ID = SearchAttributeKey.for_keyword("RegionId")
RESOURCE_STATUS = SearchAttributeKey.for_keyword("ResourceStatus")

EventWriter = Callable[[Event], Coroutine[Any, Any, None]]
"""A function that records an event and leaves the resource's status as it is."""


class Journal:
    """The writer of the steps of one resource, numbered by sequence.

    sequence: of the last recorded step; a lifecycle hands it on at continue-as-new.
    """

    def __init__(self, resource_id: str, account_id: str, sequence: int) -> None:
        self.resource_id = resource_id
        self.account_id = account_id
        self.sequence = sequence
        self.status = ""
        self.reason: str | None = None
        self._lock = asyncio.Lock()

    async def write(
        self, status: str, changes: Changes, *events: Event, reason: str | None = None
    ) -> Recorded:
        """Record status, reason, changes and events of one step, in one transaction.

        A step that is not confirmed leaves the status as it was. A lock lets steps follow each
        other, because `record` ignores a step whose sequence is lower than the last one.
        """
        async with self._lock:
            return await self._write(status, changes, events, reason)

    async def _write(
        self, status: str, changes: Changes, events: tuple[Event, ...], reason: str | None
    ) -> Recorded:
        before = self.status, self.reason
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
        recorded = await record.run_locally(
            step, summary=f"{status}: {events[0].type if events else 'changed'}"
        )
        if not recorded.confirmed:
            self._show(*before)
        return recorded

    def _show(self, status: str, reason: str | None) -> None:
        if status != self.status:
            workflow.upsert_search_attributes([RESOURCE_STATUS.value_set(status)])
        self.status, self.reason = status, reason
        why = f"\n\n{reason}" if reason else ""
        workflow.set_current_details(f"**{status}** since step {self.sequence}{why}")
