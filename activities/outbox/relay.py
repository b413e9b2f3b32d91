"""Relaying outbox rows to Temporal: starts and signals, in the order in which they were written.

A row is delivered when Temporal has accepted it, or when no workflow is left to receive it. A row
that fails or takes too long stays undelivered, and the workflow `OutboxRelay` tries it again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from sqlalchemy import update
from sqlalchemy.exc import NoResultFound
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.db.session import database
from activities.db.tables import LifecycleRow, OutboxRow
from activities.outbox.workflow_starts import LifecycleKind, WorkflowStart, kind_of
from activities.temporal.client import client, signal_once
from workflows.contracts import queues
from workflows.contracts.lifecycles import workflow_id_of
from workflows.effects.reconciliation import (
    OutboxRelayed,
    RelayOutbox,
)

START = "start"
CALL_LIMIT_S = 5.0
AT_ONCE = 32
CHUNK = 64

log = structlog.get_logger("outbox")
_all_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(frozen=True)
class Delivery:
    """One outbox row, with all that its delivery needs, so that no row is read again."""

    request_id: str
    workflow_id: str
    verb: str
    argument: dict[str, Any] | None
    start: WorkflowStart[Any] | None
    """The start of the workflow, if it may have to be started first."""
    is_final: bool
    """Whether the lifecycle has ended, so that no workflow takes signals."""
    again: bool = False
    """Whether a workflow that has ended is started once more, to remove what it left."""


async def relay(client: Client, request_ids: Sequence[str]) -> int:
    """Deliver the outbox rows with these ids that are undelivered; return how many succeeded.

    Rows of one resource are delivered in order, and a row that fails holds back those after it.
    """
    delivered = 0
    held_back: set[str] = set()
    for first in range(0, len(request_ids), CHUNK):
        wanted = request_ids[first : first + CHUNK]
        prepared = await asyncio.to_thread(_prepare, wanted)
        deliveries = [one for one in prepared if one.workflow_id not in held_back]
        done: list[str] = []
        try:
            in_order = (_deliver_in_order(client, one, done) for one in _by_workflow(deliveries))
            await asyncio.gather(*in_order)
        finally:  # An accepted row is not sent again, also when this call is cancelled half way.
            await asyncio.shield(asyncio.to_thread(_set_delivered, tuple(done)))
        delivered += len(done)
        held_back |= {one.workflow_id for one in deliveries if one.request_id not in done}
    return delivered


def _prepare(request_ids: Sequence[str]) -> list[Delivery]:
    with database().read() as session:
        rows = session.exec(
            select(OutboxRow)
            .where(col(OutboxRow.id).in_(request_ids), col(OutboxRow.delivered_at).is_(None))
            .order_by(col(OutboxRow.created_at), col(OutboxRow.id))
        ).all()
        return [found for row in rows if (found := _delivery_of(session, row)) is not None]


def _delivery_of(session: Session, request: OutboxRow) -> Delivery | None:
    """The delivery of a row; None when the row cannot be read and waits for a person."""
    try:
        return _delivery(session, request)
    except (ValueError, LookupError, TypeError, NoResultFound) as cause:
        log.warning("not relayed", request=request.id, why=str(cause))
        return None


def _delivery(session: Session, request: OutboxRow) -> Delivery:
    kind = kind_of(request.resource_id)
    row = session.get(kind.table, request.resource_id)
    removal = request.verb == START and bool((request.argument or {}).get("removal"))
    is_final = row is None or row.status in kind.noun.final_statuses
    again = removal and is_final
    start = None
    if row is not None and row.status != "archived" and (again or row.sequence == 0):
        start = _start_of(session, kind, row, removal=removal)
    return Delivery(
        request_id=request.id,
        workflow_id=workflow_id_of(request.resource_id),
        # The removal was requested of a stopped job; if that runs again, the removal is a signal.
        verb="remove" if removal and not again else request.verb,
        argument=None if removal else request.argument,
        start=start,
        is_final=is_final,
        again=again,
    )


def _start_of(
    session: Session, kind: LifecycleKind[Any, Any], row: LifecycleRow, *, removal: bool
) -> WorkflowStart[Any]:
    start = kind.start(session, row)
    if removal and kind.starts_for_removal:
        return replace(start, argument=start.argument.model_copy(update={"removal": True}))
    return start


def _by_workflow(deliveries: Iterable[Delivery]) -> list[list[Delivery]]:
    grouped: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        grouped[delivery.workflow_id].append(delivery)
    return list(grouped.values())


async def _deliver_in_order(
    client: Client, deliveries: Sequence[Delivery], done: list[str]
) -> None:
    """Deliver up to the first failure; add each id to `done` once Temporal has accepted the row."""
    for delivery in deliveries:
        try:
            async with _slots(), asyncio.timeout(CALL_LIMIT_S):
                taken = await _deliver(client, delivery)
        except (RPCError, RuntimeError, TimeoutError) as cause:
            log.warning("not relayed", request=delivery.request_id, why=str(cause))
            taken = False
        if not taken:
            return
        done.append(delivery.request_id)


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
        await client.start_workflow(
            start.workflow,
            start.argument,
            id=start.id,
            task_queue=queues.MAIN,
            id_reuse_policy=policy.ALLOW_DUPLICATE if delivery.again else policy.REJECT_DUPLICATE,
            id_conflict_policy=_conflict_policy(delivery),
            search_attributes=start.search_attributes,
            static_summary=start.summary,
        )
    except WorkflowAlreadyStartedError:
        # A removal waits until the earlier run has closed; any other start is not needed any more.
        return not delivery.again
    return True


def _conflict_policy(delivery: Delivery) -> WorkflowIDConflictPolicy:
    if delivery.again:
        return WorkflowIDConflictPolicy.FAIL
    return WorkflowIDConflictPolicy.USE_EXISTING


def _set_delivered(request_ids: Sequence[str]) -> None:
    if not request_ids:
        return
    with database().write() as session:
        session.execute(
            update(OutboxRow)
            .where(col(OutboxRow.id).in_(request_ids))
            .values(delivered_at=datetime.now(UTC))
        )


def _slots() -> asyncio.Semaphore:
    """The limit of concurrent calls to Temporal, shared by all relays of this event loop."""
    return _all_slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


@activity.defn
async def relay_outbox(command: RelayOutbox) -> OutboxRelayed:
    """Relay outbox rows that have waited for longer than the outbox dispatcher needs."""
    ids = await asyncio.to_thread(_undelivered, command)
    delivered = await relay(client(), ids) if ids else 0
    return OutboxRelayed(delivered=delivered, more=len(ids) >= command.limit and delivered > 0)


def _undelivered(command: RelayOutbox) -> list[str]:
    before = datetime.now(UTC) - timedelta(seconds=command.older_than_s)
    query = (
        select(OutboxRow.id)
        .where(col(OutboxRow.delivered_at).is_(None), col(OutboxRow.created_at) <= before)
        .order_by(col(OutboxRow.created_at))
        .limit(command.limit)
    )
    with database().read() as session:
        return list(session.exec(query).all())
