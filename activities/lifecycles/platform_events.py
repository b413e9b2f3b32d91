"""Events of accounts themselves, and of the installation, which the administrator's account has."""

from datetime import UTC, datetime, timedelta

import structlog
from pydantic import JsonValue
from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.db.tables import Account, EventRow
from workflows.contracts.events import Event, NodeEvent, PlatformEvent
from workflows.contracts.lifecycles import Record

MOST_SINGLE = 10
MOST_SHARE = 0.05
"""Up to this many lost workflows, or this share of all, each is judged by itself."""
VIOLATION_INTERVAL = timedelta(hours=1)
"""Between two platform events of one node, whose owner can bring it back to fail at any rate."""

log = structlog.get_logger("reconciliation")


def append_platform_event(session: Session, event: Event, at: datetime) -> None:
    """Add an event to the administrator's account, where there is one.

    Events of other accounts are added to the same transaction before, so that all transactions
    take the locks of accounts in one order.
    """
    account_id = _administrators_account(session)
    if account_id is not None:
        append_account_event(session, account_id, event, at)


def append_account_event(session: Session, account_id: str, event: Event, at: datetime) -> None:
    """Add an event of no other resource to an account, in the caller's transaction."""
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


def is_mass_loss(missing: int, rows: int) -> bool:
    """Whether so many rows have no workflow that no person can have assigned it."""
    return missing > MOST_SINGLE and missing > MOST_SHARE * rows


def record_mass_loss(missing: int, rows: int) -> None:
    """Say in the log, and in one event of the administrator's account, that all are adopted."""
    message = (
        f"Temporal does not know {missing} of {rows} workflows: its files were lost, restored or "
        "replaced; all are started again from their rows, and what runs goes on"
    )
    log.error("mass loss of workflows", missing=missing, rows=rows)
    event = Event(
        type=PlatformEvent.WORKFLOWS_LOST,
        message=message,
        details={"missing": missing, "rows": rows},
    )
    with database().write() as session:
        append_platform_event(session, event, datetime.now(UTC))


def append_violation(session: Session, step: Record) -> None:
    """Tell administrators of the protocol violation in a node's step, if there is one."""
    violated = [one for one in step.events if one.type == NodeEvent.PROTOCOL_VIOLATED]
    if not violated or _is_known(session, step):
        return
    details: dict[str, JsonValue] = {"node_id": step.resource_id, "account_id": step.account_id}
    message = f"node {step.resource_id} of {step.account_id}: {violated[0].message}"
    event = Event(type=PlatformEvent.PROTOCOL_VIOLATED, message=message, details=details)
    append_platform_event(session, event, step.at)


def _is_known(session: Session, step: Record) -> bool:
    """Whether administrators were told of a violation of the same node a short time ago."""
    recent = select(EventRow.details).where(
        EventRow.account_id == _administrators_account(session),
        EventRow.type == PlatformEvent.PROTOCOL_VIOLATED,
        col(EventRow.at) > step.at - VIOLATION_INTERVAL,
    )
    return any(one.get("node_id") == step.resource_id for one in session.exec(recent))


def _administrators_account(session: Session) -> str | None:
    query = select(Account.id).where(col(Account.is_administrator).is_(True))
    return session.exec(query.order_by(col(Account.created_at))).first()
