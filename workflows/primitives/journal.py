"""The journal of a lifecycle: its numbered steps, recorded in order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from workflows.contracts.base import Contract
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import Changes, Record, Recorded
from workflows.effects.lifecycles import record

LEASE_ID = SearchAttributeKey.for_keyword("LeaseId")
NODE_ID = SearchAttributeKey.for_keyword("NodeId")
REGION_ID = SearchAttributeKey.for_keyword("RegionId")
RESOURCE_STATUS = SearchAttributeKey.for_keyword("ResourceStatus")

STALE = "stale"
"""The status in Temporal of a workflow run whose row is ahead, after a restore or a reset."""


def is_long() -> bool:
    """Whether the server suggests that this workflow run continues as new."""
    return workflow.info().is_continue_as_new_suggested()


EventWriter = Callable[[Event], Coroutine[Any, Any, None]]
"""A function that records an event and leaves the resource's status as it is."""


class Journal:
    """The writer of the steps of one resource, numbered by sequence.

    sequence, reason: of the last recorded step; a lifecycle hands them on at continue-as-new.
    """

    def __init__(
        self, resource_id: str, account_id: str, sequence: int, reason: str | None = None
    ) -> None:
        self.resource_id = resource_id
        self.account_id = account_id
        self.sequence = sequence
        self.status = ""
        self.reason = reason
        self.next_run: Callable[[], Contract | None] = lambda: None
        """Builds the argument of the next workflow run; None: the lifecycle cannot resume now. The
        lifecycle that owns the journal sets it."""
        self._lock = asyncio.Lock()

    async def write(
        self, status: str, changes: Changes, *events: Event, reason: str | None = None
    ) -> Recorded:
        """Record status, reason, changes and events of one step, in one transaction.

        A step that is not confirmed leaves the status as it was. A lock lets steps follow each
        other, because `record` ignores a step whose sequence is lower than the last one. If the row
        is ahead of the step, this workflow run is stale: it stops here, and the reconciliation
        replaces it by one that goes on from the row.
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
            run_id=workflow.info().run_id,
            history_length=workflow.info().get_current_history_length(),
        )
        recorded = await record.run_locally(
            step, summary=f"{status}: {events[0].type if events else 'changed'}"
        )
        if recorded.is_stale:
            await self._stop(recorded.sequence)
        if not recorded.confirmed:
            self._show(*before)
        return recorded

    async def continue_when_long(self) -> None:
        """Continue as new if the server suggests it and the lifecycle can resume where it is.

        Every loop of a lifecycle calls this where no activity is open, which would be cancelled.
        """
        if not is_long():
            return
        await workflow.wait_condition(workflow.all_handlers_finished)
        if (argument := self.next_run()) is not None:
            workflow.continue_as_new(argument)

    async def stop_if_behind(self, sequence: int) -> None:
        """Stop this workflow run as stale if its row is ahead: the row has this sequence."""
        if sequence > self.sequence:
            await self._stop(sequence)

    async def _stop(self, sequence: int) -> None:
        workflow.upsert_search_attributes([RESOURCE_STATUS.value_set(STALE)])
        workflow.set_current_details(
            f"**{STALE}**: the row has step {sequence}, this run comes from step {self.sequence}"
        )
        while True:
            await workflow.wait_condition(lambda: False)

    def _show(self, status: str, reason: str | None) -> None:
        if status != self.status:
            workflow.upsert_search_attributes([RESOURCE_STATUS.value_set(status)])
        self.status, self.reason = status, reason
        why = f"\n\n{reason}" if reason else ""
        workflow.set_current_details(f"**{status}** since step {self.sequence}{why}")
