"""Writing outbox rows in the caller's transaction: starts of new resources, and signals.

The outbox dispatcher (`activities/outbox/dispatcher.py`) relays the rows after the commit; the
workflow `OutboxRelay` relays all rows that are left.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from sqlalchemy import ColumnElement, insert
from sqlmodel import Session, SQLModel, col, select

from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.db.tables import EventRow, LifecycleRow, OutboxRow
from workflows.contracts.lifecycles import noun_of

WAKE = "wake"
WAKE_INTERVAL = timedelta(seconds=10)
"""Between two wakes that strangers cause, such as the announcements of a machine."""

# Of the tables, because every submission writes both, and an object costs three times as much.
_NEW_EVENT = insert(SQLModel.metadata.tables[EventRow.__tablename__])
_NEW_REQUEST = insert(SQLModel.metadata.tables[OutboxRow.__tablename__])


def create(session: Session, row: LifecycleRow, details: Mapping[str, Any] | None = None) -> str:
    """Add a row, its event of sequence 0, and its workflow's start; return the outbox row's id.

    details: of the event.
    Raises: ValueError, when no lifecycle has ids like the row's, or its noun has no such event.
    """
    noun = noun_of(row.id)
    session.add(row)
    session.flush()
    # `record` takes the same lock, so that positions grow in the order of the commits.
    advisory_lock(session, f"events/{row.account_id}")
    session.execute(
        _NEW_EVENT,
        {
            "id": new_id("evt"),
            "account_id": row.account_id,
            "resource_id": row.id,
            "sequence": 0,
            "index": 0,
            "type": noun.events(f"{noun.name}.requested").value,
            "message": f"{noun.name} {row.name} was requested",
            "details": dict(details or {}),
            "at": row.created_at,
        },
    )
    return enqueue(session, row.id, "start", None, row.created_at)


def enqueue(
    session: Session,
    resource_id: str,
    verb: str,
    argument: BaseModel | dict[str, Any] | None,
    at: datetime,
) -> str:
    """Write an outbox row that starts or signals a workflow; return the row's id."""
    content = argument.model_dump(mode="json") if isinstance(argument, BaseModel) else argument
    request_id = new_id("req")
    session.execute(
        _NEW_REQUEST,
        {
            "id": request_id,
            "resource_id": resource_id,
            "verb": verb,
            "argument": content,
            "created_at": at,
            "attempts": 0,
        },
    )
    return request_id


def wake(session: Session, resource_id: str, at: datetime, *, slowly: bool = False) -> str:
    """Write the outbox row that wakes a lifecycle, and return the row's id.

    A resource has one such row, because a wake carries nothing: a later one takes its place.
    slowly: at most one wake in `WAKE_INTERVAL`.
    """
    row = session.exec(
        select(OutboxRow).where(OutboxRow.resource_id == resource_id, OutboxRow.verb == WAKE)
    ).first()
    if row is None:
        return enqueue(session, resource_id, WAKE, None, at)
    free_at = row.delivered_at + WAKE_INTERVAL if row.delivered_at else row.next_attempt_at
    row.id = new_id("req")  # A relay that has sent the earlier wake does not mark this one.
    row.created_at = at
    row.next_attempt_at = free_at if slowly else None
    row.attempts, row.delivered_at, row.refused_since, row.parked_at = 0, None, None, None
    session.add(row)
    return row.id


def is_waiting() -> ColumnElement[bool]:
    """Whether an outbox row waits to be delivered: it is neither delivered nor parked."""
    return col(OutboxRow.delivered_at).is_(None) & col(OutboxRow.parked_at).is_(None)
