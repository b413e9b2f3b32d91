"""Relaying outbox rows to Temporal: starts and signals, in order for each resource.

A row is delivered when Temporal has accepted it, or when no workflow is left to receive it. A row
that fails or takes too long holds back the later ones of its resource, and no others. The workflow
`OutboxRelay` tries it again after a pause that doubles. A row that Temporal has refused for a day
is parked; while Temporal does not answer at all, nothing is.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from sqlalchemy import update
from sqlmodel import Session, col, func, select
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.db.tables import EventRow, OutboxRow
from activities.outbox.deliveries import (
    ROWS_AT_ONCE,
    START,
    Delivery,
    prepare,
    prepare_requested,
)
from activities.outbox.requests import WAKE, is_waiting
from activities.outbox.workflow_starts import (
    WorkflowStart,
    kind_of,
    start_workflow,
)
from activities.temporal.client import client, signal_once
from workflows.effects.reconciliation import (
    OutboxRelayed,
    RelayOutbox,
)
from workflows.rules.counts import counted

CALL_LIMIT_S = 5.0
AT_ONCE = 32
CHUNK = 64
"""Resources whose rows are prepared and marked together."""
RETRY_INTERVAL_MIN = timedelta(seconds=5)
RETRY_INTERVAL_MAX = timedelta(minutes=2)
NO_ANSWER_INTERVAL_MAX = timedelta(seconds=20)
"""While Temporal does not answer, which says nothing of the row: all rows wait for its return."""
PARK_AFTER = timedelta(days=1)
REFUSALS = (
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.OUT_OF_RANGE,
    RPCStatusCode.UNIMPLEMENTED,
)
"""Answers that are about the row, and not about the state of Temporal."""

log = structlog.get_logger("outbox")
_all_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass
class Outcome:
    """What a relay has delivered, and which rows it has failed to deliver."""

    delivered: list[str] = field(default_factory=list)
    failed: dict[str, bool] = field(default_factory=dict)
    """Each with whether Temporal has refused it, or nobody can; False: no answer."""


async def relay(client: Client, request_ids: Sequence[str]) -> int:
    """Deliver the waiting rows of the resources of these rows; return how many were delivered.

    The rows that were written before them come first, also those that wait for another try.
    """
    delivered = 0
    tried: set[str] = set()
    for first in range(0, len(request_ids), CHUNK):
        some = request_ids[first : first + CHUNK]
        prepared = await asyncio.to_thread(prepare_requested, some, tried)
        delivered += await _deliver_all(client, prepared)
    return delivered


async def _relay(client: Client, resource_ids: Sequence[str]) -> int:
    delivered = 0
    for first in range(0, len(resource_ids), CHUNK):
        some = resource_ids[first : first + CHUNK]
        delivered += await _deliver_all(client, await asyncio.to_thread(prepare, some))
    return delivered


async def _deliver_all(client: Client, in_order: Sequence[Sequence[Delivery | str]]) -> int:
    """Deliver the prepared rows of each resource; return how many were delivered."""
    outcome = Outcome()
    try:
        await asyncio.gather(*(_deliver_in_order(client, one, outcome) for one in in_order))
    finally:  # An accepted row is not sent again, also when this call is cancelled half way.
        await asyncio.shield(asyncio.to_thread(_note, outcome))
    return len(outcome.delivered)


async def _deliver_in_order(
    client: Client, deliveries: Sequence[Delivery | str], outcome: Outcome
) -> None:
    """Deliver the rows of one resource up to the first failure; a failed wake holds back none."""
    for delivery in deliveries:
        if isinstance(delivery, str):
            outcome.failed[delivery] = True
            return
        refused = True
        try:
            async with _slots(), asyncio.timeout(CALL_LIMIT_S):
                taken = await _deliver(client, delivery)
        except (RPCError, RuntimeError, TimeoutError) as cause:
            log.warning("not relayed", request=delivery.request_id, why=str(cause))
            taken, refused = False, isinstance(cause, RPCError) and cause.status in REFUSALS
        if taken:
            outcome.delivered.append(delivery.request_id)
            continue
        outcome.failed[delivery.request_id] = refused
        if delivery.verb != WAKE:
            return


async def _deliver(client: Client, delivery: Delivery) -> bool:
    """Deliver one row; False when it must be tried again later."""
    if delivery.start is not None and not await _start(client, delivery.start, delivery):
        return False
    if delivery.verb == START:
        return True
    arguments = [] if delivery.argument is None else [delivery.argument]
    call = (delivery.workflow_id, delivery.verb, arguments)
    try:
        await signal_once(client, *call, request_id=delivery.request_id)
    except RPCError as cause:
        if cause.status is not RPCStatusCode.NOT_FOUND:
            raise
        return delivery.is_final  # A lost workflow is restarted first; then the row is relayed.
    return True


async def _start(client: Client, start: WorkflowStart[Any], delivery: Delivery) -> bool:
    """Start a workflow that was never started; False when an earlier one has not closed yet."""
    policy = WorkflowIDReusePolicy
    try:
        await start_workflow(
            client,
            start,
            id_reuse_policy=policy.ALLOW_DUPLICATE if delivery.again else policy.REJECT_DUPLICATE,
            id_conflict_policy=_conflict_policy(delivery),
        )
    except WorkflowAlreadyStartedError:
        # A removal waits until the earlier run has closed; any other start is not needed any more.
        return not delivery.again
    return True


def _conflict_policy(delivery: Delivery) -> WorkflowIDConflictPolicy:
    if delivery.again:
        return WorkflowIDConflictPolicy.FAIL
    return WorkflowIDConflictPolicy.USE_EXISTING


def _note(outcome: Outcome) -> None:
    """Mark the delivered rows, and put off or park the failed ones."""
    if not outcome.delivered and not outcome.failed:
        return
    now = datetime.now(UTC)
    # Relays that put off the rows of one resource would otherwise lock them in different orders.
    with database().write("outbox/failed" if outcome.failed else None) as session:
        delivered = update(OutboxRow).where(col(OutboxRow.id).in_(outcome.delivered))
        session.execute(delivered.values(delivered_at=now))
        if not outcome.failed:
            return
        failed = select(OutboxRow).where(col(OutboxRow.id).in_(outcome.failed), is_waiting())
        for row in session.exec(failed.order_by(col(OutboxRow.id)).with_for_update()).all():
            _put_off(session, row, now, refused=outcome.failed[row.id])


def _put_off(session: Session, row: OutboxRow, now: datetime, *, refused: bool) -> None:
    """Try the row again after a pause; park it after a day of refusals, with an event."""
    row.attempts += 1
    pause = RETRY_INTERVAL_MIN * 2 ** min(row.attempts - 1, 10)
    longest = RETRY_INTERVAL_MAX if refused else NO_ANSWER_INTERVAL_MAX
    row.next_attempt_at = now + min(pause, longest)
    row.refused_since = (row.refused_since or now) if refused else None
    if row.refused_since is not None and row.refused_since <= now - PARK_AFTER:
        row.parked_at = now
        _record_parked(session, row, now)
    session.add(row)
    # The later rows of the resource wait for this one, so the relay does not look at them before.
    later = update(OutboxRow).where(
        col(OutboxRow.resource_id) == row.resource_id,
        col(OutboxRow.verb) != WAKE,
        is_waiting(),
        col(OutboxRow.id) != row.id,
    )
    if row.verb != WAKE:
        next_at = now if row.parked_at else row.next_attempt_at
        session.execute(later.values(next_attempt_at=next_at))


def _record_parked(session: Session, request: OutboxRow, now: datetime) -> None:
    """Append the event of a parked row to the last step of its resource."""
    try:
        kind = kind_of(request.resource_id)
    except ValueError:
        return
    row = session.get(kind.table, request.resource_id)
    if row is None:
        return
    advisory_lock(session, f"events/{row.account_id}")
    last = select(func.max(EventRow.index)).where(
        EventRow.resource_id == row.id, EventRow.sequence == row.sequence
    )
    index = session.exec(last).one()
    tried = counted(request.attempts, "attempt")
    message = f"{request.verb} could not be delivered in {tried} since "
    session.add(
        EventRow(
            id=new_id("evt"),
            account_id=row.account_id,
            resource_id=row.id,
            sequence=row.sequence,
            index=0 if index is None else index + 1,
            type=f"{kind.noun.name}.request-parked",
            message=f"{message}{request.created_at:%Y-%m-%d %H:%M} UTC; request it again",
            details={"request_id": request.id, "verb": request.verb},
            at=now,
        )
    )


def _slots() -> asyncio.Semaphore:
    """The limit of concurrent calls to Temporal, shared by all relays of this event loop."""
    return _all_slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


@activity.defn
async def relay_outbox(command: RelayOutbox) -> OutboxRelayed:
    """Relay the due outbox rows that have waited for longer than the outbox dispatcher needs."""
    resource_ids = await asyncio.to_thread(_due, command)
    delivered = await _relay(client(), resource_ids) if resource_ids else 0
    more = len(resource_ids) >= command.limit or delivered >= ROWS_AT_ONCE
    return OutboxRelayed(delivered=delivered, more=more and delivered > 0)


def _due(command: RelayOutbox) -> list[str]:
    """The resources with a due row, those first whose row has been due for longest."""
    now = datetime.now(UTC)
    due_at = func.coalesce(OutboxRow.next_attempt_at, OutboxRow.created_at)
    query = (
        select(OutboxRow.resource_id)
        .where(
            is_waiting(),
            col(OutboxRow.created_at) <= now - timedelta(seconds=command.older_than_s),
            col(OutboxRow.next_attempt_at).is_(None) | (col(OutboxRow.next_attempt_at) <= now),
        )
        .group_by(col(OutboxRow.resource_id))
        .order_by(func.min(due_at), col(OutboxRow.resource_id))
        .limit(command.limit)
    )
    with database().read() as session:
        return list(session.exec(query).all())
