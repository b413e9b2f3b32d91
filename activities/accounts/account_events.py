"""Events of an account itself, and of no resource in it."""

from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, select

from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.db.tables import EventRow
from workflows.contracts.events import Event


def append_account_event(session: Session, account_id: str, event: Event, at: datetime) -> None:
    """Add an event to an account in the caller's transaction."""
    advisory_lock(session, f"events/{account_id}")
    sequence = int(at.timestamp())
    step = EventRow.resource_id == account_id, EventRow.sequence == sequence
    last = session.exec(select(func.max(EventRow.index)).where(*step)).one()
    session.add(
        EventRow(
            id=new_id("evt"),
            account_id=account_id,
            resource_id=account_id,
            sequence=sequence,
            index=0 if last is None else last + 1,
            type=event.type,
            message=event.message,
            details=event.details,
            at=at,
        )
    )
    session.flush()
