"""Events: their responses."""

from activities.db import tables
from api.schemas.events import Event


def event_response(row: tables.EventRow) -> Event:
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
