"""What all lifecycles share: numbered steps that are written down, and an inbox."""

import asyncio
from collections import deque
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as OutOfTime

from workflows.contracts.base import Contract
from workflows.contracts.events import Event
from workflows.contracts.record import Changes, Record
from workflows.effects.lifecycle import record
from workflows.waiting import until

Picked = TypeVar("Picked", bound=Contract)

UNSERVED = "Unserved"
"""The kind of failure of what no worker has taken: nobody has looked, so nothing was found."""

NODE_ID = SearchAttributeKey.for_keyword("NodeId")
REGION_ID = SearchAttributeKey.for_keyword("RegionId")
RESOURCE_STATUS = SearchAttributeKey.for_keyword("ResourceStatus")


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
        await record.at_once(step, summary=f"{status}: {events[0].type if events else 'changed'}")

    def _show(self, status: str, reason: str | None) -> None:
        if status != self.status:
            workflow.upsert_search_attributes([RESOURCE_STATUS.value_set(status)])
        self.status, self.reason = status, reason
        why = f"\n\n{reason}" if reason else ""
        workflow.set_current_details(f"**{status}** since step {self.sequence}{why}")


class Inbox:
    """Messages in order of arrival: handlers put them in, one loop takes them out."""

    def __init__(self) -> None:
        self._messages: deque[Contract] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Contract) -> None:
        self._messages.append(message)

    def take(self) -> Contract | None:
        """The oldest message, None when there is none."""
        return self._messages.popleft() if self._messages else None

    def holds(self, *kinds: type[Contract]) -> bool:
        return any(isinstance(message, kinds) for message in self._messages)

    def pick(self, *kinds: type[Picked]) -> Picked | None:
        """The oldest message of these kinds, out of order; None when there is none."""
        for message in self._messages:
            if isinstance(message, kinds):
                self._messages.remove(message)
                return message
        return None

    async def wait(self, limit: timedelta) -> Contract | None:
        """The next message, None when there is none within the limit."""
        await until(lambda: bool(self._messages), limit, "news")
        return self.take()


def cause_of(failure: BaseException) -> tuple[str, str]:
    """(type, message) of what an effect has said of its failure, for people and for decisions.

    Below its own words may lie what made it fail: a socket's error says less, and of another type.
    What ran out of time has said nothing: then its name is the cause.
    """
    bottom: BaseException = failure
    asked = failure.activity_type if isinstance(failure, ActivityError) else ""
    while (
        isinstance(bottom, FailureError)
        and not isinstance(bottom, ApplicationError)
        and bottom.cause is not None
    ):
        bottom = bottom.cause
    if isinstance(bottom, OutOfTime) and bottom.type is TimeoutType.SCHEDULE_TO_START:
        return UNSERVED, f"{asked}: no worker serves its queue, not taken within its limit"
    if isinstance(bottom, OutOfTime):
        silent = "sign of life" if bottom.type is TimeoutType.HEARTBEAT else "answer"
        return type(bottom).__name__, f"{asked}: no {silent} within its limit"
    kind = bottom.type if isinstance(bottom, ApplicationError) else type(bottom).__name__
    return kind or "", bottom.message if isinstance(bottom, FailureError) else str(bottom)


EFFECT_FAILED = (ActivityError, ApplicationError)
"""What a failed effect raises: a local activity the second, an ordinary one the first."""
