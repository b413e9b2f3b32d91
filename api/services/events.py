"""Events: their responses."""

from collections.abc import Sequence

from sqlmodel import Session, col, not_, select

from activities.db import tables
from api.authorization import Caller
from api.schemas.events import Event
from api.services.ownership import has_known_output
from api.services.people import People
from workflows.contracts.events import JobEvent

_SIZES = (JobEvent.STORED, JobEvent.DELIVERED)
"""The events that say how much a job has written."""
_STORED = "stored"


def event_responses(
    session: Session, caller: Caller, rows: Sequence[tables.EventRow]
) -> list[Event]:
    """The events of these rows, as a caller may see them."""
    people = People(session, caller, [row.message for row in rows])
    withheld = _withheld(session, caller, rows)
    return [_event_response(row, people, withheld) for row in rows]


def _withheld(session: Session, caller: Caller, rows: Sequence[tables.EventRow]) -> set[str]:
    """The ids of the jobs whose output the caller may not know the size of."""
    others = {
        row.resource_id
        for row in rows
        if row.type in _SIZES and row.account_id != caller.account_id
    }
    if not others:
        return set()
    of_others = select(tables.Job.id).where(
        col(tables.Job.id).in_(others), not_(has_known_output(caller))
    )
    return set(session.exec(of_others))


def _event_response(row: tables.EventRow, people: People, withheld: set[str]) -> Event:
    is_withheld = row.type in _SIZES and row.resource_id in withheld
    return Event(
        id=row.id,
        position=row.position or 0,
        account_id=row.account_id,
        resource_id=row.resource_id,
        sequence=row.sequence,
        type=row.type,
        message=_STORED if is_withheld else people.named(row.message) or "",
        details={} if is_withheld else row.details,
        at=row.at,
    )
