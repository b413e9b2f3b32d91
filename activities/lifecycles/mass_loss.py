"""Mass loss: many rows have no workflow at once, because Temporal's own state was lost."""

from datetime import UTC, datetime

import structlog
from sqlmodel import col, select

from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.db.tables import Account, EventRow
from workflows.contracts.events import PlatformEvent

MOST_SINGLE = 10
MOST_SHARE = 0.05
"""Up to this many lost workflows, or this share of all, each is judged by itself."""

log = structlog.get_logger("reconciliation")


def is_mass_loss(missing: int, rows: int) -> bool:
    """Whether so many rows have no workflow that no person can have wished it."""
    return missing > MOST_SINGLE and missing > MOST_SHARE * rows


def record_mass_loss(missing: int, rows: int) -> None:
    """Say in the log, and in one event of the administrator's account, that all are adopted."""
    message = (
        f"Temporal does not know {missing} of {rows} workflows: its files were lost, restored or "
        "replaced; all are started again from their rows, and what runs goes on"
    )
    log.error("mass loss of workflows", missing=missing, rows=rows)
    now = datetime.now(UTC)
    with database().write() as session:
        query = select(Account.id).where(col(Account.is_administrator).is_(True))
        account_id = session.exec(query).first()
        if account_id is None:
            return
        advisory_lock(session, f"events/{account_id}")
        session.add(
            EventRow(
                id=new_id("evt"),
                account_id=account_id,
                resource_id=account_id,
                sequence=int(now.timestamp()),
                type=PlatformEvent.WORKFLOWS_LOST,
                message=message,
                details={"missing": missing, "rows": rows},
                at=now,
            )
        )
