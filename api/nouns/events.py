"""Events: how they are shown, and the first one of each resource, which the API itself writes."""

from sqlmodel import Session

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import take_turn
from api.models.events import Event


def shown_event(row: tables.EventRow) -> Event:
    return Event(
        id=row.id,
        position=row.position or 0,
        account_id=row.account_id,
        resource_id=row.resource_id,
        sequence=row.sequence,
        type=row.type,
        message=row.message,
        details=row.details,
        at=row.at,
    )


def note_creation(session: Session, row: tables.LifecycleRow, noun: str) -> None:
    """The event of sequence 0: that the resource was asked for."""
    # The same turn as `record` takes: positions grow in the order of the commits.
    take_turn(session, f"events/{row.account_id}")
    session.add(
        tables.EventRow(
            id=new_id("evt"),
            account_id=row.account_id,
            resource_id=row.id,
            sequence=0,
            type=f"{noun}.requested",
            message=f"{noun} {row.name} was asked for",
            details={},
            at=row.created_at,
        )
    )
