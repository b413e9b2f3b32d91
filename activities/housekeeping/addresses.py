"""Housekeeping: removing the postal addresses of boot-drive requests that have ended."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, CursorResult, null, update
from sqlmodel import and_, col, or_, select

from activities.db.session import database
from activities.db.tables import BootDriveRequest
from workflows.contracts.boot_drive_requests import BootDriveRequestStatus

ADDRESS_RETENTION = timedelta(days=30)
"""After a request was refused, withdrawn or received: long enough to ask about a parcel."""
SHIPPED_RETENTION = timedelta(days=180)
"""After drives were shipped whose arrival nobody confirms."""
BATCH = 500
_ENDED = (
    BootDriveRequestStatus.REFUSED.value,
    BootDriveRequestStatus.WITHDRAWN.value,
    BootDriveRequestStatus.RECEIVED.value,
)


def remove_addresses(now: datetime) -> int:
    """Remove the address, and the number of its parcel, of old requests; return of how many."""
    table, removed = BootDriveRequest, 0
    old = select(table.id).where(_is_old(now)).order_by(col(table.id)).limit(BATCH)
    while True:
        with database().read() as session:
            ids = session.exec(old).all()
        if not ids:
            return removed
        with database().write() as session:
            changed = session.execute(
                update(table)
                .where(col(table.id).in_(ids), _is_old(now))
                .values(ship_to=null(), tracking=None)
            )
        removed += changed.rowcount if isinstance(changed, CursorResult) else 0


def _is_old(now: datetime) -> ColumnElement[bool]:
    """Whether a request has an address that nobody needs any more."""
    status, at = col(BootDriveRequest.status), col(BootDriveRequest.updated_at)
    shipped = BootDriveRequestStatus.SHIPPED.value
    return and_(
        col(BootDriveRequest.ship_to).is_not(None),
        or_(
            and_(status.in_(_ENDED), at < now - ADDRESS_RETENTION),
            and_(status == shipped, at < now - SHIPPED_RETENTION),
        ),
    )
