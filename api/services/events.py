"""Events: their responses."""

from collections.abc import Sequence

from sqlmodel import Session

from activities.db import tables
from api.authorization import Caller
from api.schemas.events import Event
from api.services.people import People


def event_responses(
    session: Session, caller: Caller, rows: Sequence[tables.EventRow]
) -> list[Event]:
    """The events of these rows, as a caller may see them."""
    people = People(session, caller, [row.message for row in rows])
    return [_event_response(row, people) for row in rows]


def _event_response(row: tables.EventRow, people: People) -> Event:
    return Event(
        id=row.id,
        position=row.position or 0,
        account_id=row.account_id,
        resource_id=row.resource_id,
        sequence=row.sequence,
        type=row.type,
        message=people.named(row.message) or "",
        details=row.details,
        at=row.at,
    )
