"""Deliveries: the outbox rows that are relayed next, with all that Temporal needs of each."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from sqlalchemy.exc import NoResultFound
from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from activities.db.session import database
from activities.db.tables import LifecycleRow, OutboxRow
from activities.outbox.requests import WAKE, is_waiting
from activities.outbox.workflow_starts import LifecycleKind, WorkflowStart, kind_of
from workflows.contracts.lifecycles import workflow_id_of

START = "start"
ROWS_AT_ONCE = 20
"""Rows of one resource that one relay delivers."""

log = structlog.get_logger("outbox")


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


def prepare_requested(
    request_ids: Sequence[str], tried: set[str]
) -> Sequence[Sequence[Delivery | str]]:
    """The next deliveries of the resources of these rows, but of those tried before."""
    rows = select(OutboxRow.resource_id).where(col(OutboxRow.id).in_(request_ids), is_waiting())
    with database().read() as session:
        resource_ids = set(session.exec(rows).all()) - tried
        tried |= resource_ids
        return _prepared(session, sorted(resource_ids))


def prepare(resource_ids: Sequence[str]) -> Sequence[Sequence[Delivery | str]]:
    """The next deliveries of these resources."""
    with database().read() as session:
        return _prepared(session, resource_ids)


def _prepared(session: Session, resource_ids: Sequence[str]) -> Sequence[Sequence[Delivery | str]]:
    """The next deliveries of each resource, in order; the id alone of a row that cannot be read."""
    now = datetime.now(UTC)
    in_order: dict[str, list[Delivery | str]] = defaultdict(list)
    requests = session.exec(_oldest_of(resource_ids)).all()
    # The session holds no object that nobody else holds; from these `_delivery` takes its row.
    resources = _resources(session, {request.resource_id for request in requests})
    for request in requests:
        is_due = request.next_attempt_at is None or request.next_attempt_at <= now
        if is_due or request.verb != WAKE:
            delivery = _delivery_of(session, request) or request.id
            in_order[request.resource_id].append(delivery)
    del resources
    return list(in_order.values())


def _resources(session: Session, resource_ids: Iterable[str]) -> Sequence[LifecycleRow]:
    """The rows of these resources, with one question for each table."""
    by_table: dict[type[LifecycleRow], list[str]] = defaultdict(list)
    for resource_id in resource_ids:
        with suppress(ValueError):  # An outbox row of no kind waits for a person.
            by_table[kind_of(resource_id).table].append(resource_id)
    return [
        row
        for table, ids in by_table.items()
        for row in session.exec(select(table).where(col(table.id).in_(ids))).all()
    ]


def _oldest_of(resource_ids: Sequence[str]) -> SelectOfScalar[OutboxRow]:
    """The query for the oldest waiting rows of each resource, `ROWS_AT_ONCE` at most."""
    age = (col(OutboxRow.created_at), col(OutboxRow.id))
    number = func.row_number().over(partition_by=col(OutboxRow.resource_id), order_by=age)
    waiting = (
        select(OutboxRow.id, number.label("number"))
        .where(col(OutboxRow.resource_id).in_(resource_ids), is_waiting())
        .subquery()
    )
    return (
        select(OutboxRow)
        .join(waiting, waiting.c.id == OutboxRow.id)
        .where(waiting.c.number <= ROWS_AT_ONCE)
        .order_by(*age)
    )


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
