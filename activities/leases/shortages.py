"""Shortages: what a provider does not have at the moment, remembered for all jobs."""

from datetime import UTC, datetime, timedelta

from sqlmodel import Session, col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Node, ShortageRow
from workflows.contracts.base import Done
from workflows.contracts.machines import MachineClaim, Shortage
from workflows.contracts.statuses import NodeType
from workflows.effects.machines import (
    FindShortages,
    RememberShortage,
    ShortagesFound,
)

SHORTAGE_KEPT = timedelta(minutes=10)
"""How long nobody asks again for what was not to be had."""


@activity.defn
def find_shortages(command: FindShortages) -> ShortagesFound:
    """What is known not to be had of a provider at this moment."""
    query = select(ShortageRow).where(
        col(ShortageRow.provider_id) == command.provider_id,
        col(ShortageRow.until) > datetime.now(UTC),
    )
    with database().read() as session:
        rows = session.exec(query).all()
        found = [Shortage(scope=row.scope, reason=row.reason, until=row.until) for row in rows]
    return ShortagesFound(shortages=tuple(found))


@activity.defn
def remember_shortage(command: RememberShortage) -> Done:
    """For a while, and for all jobs; a newer one takes the older one's place."""
    row = ShortageRow(
        provider_id=command.provider_id,
        scope=command.scope,
        reason=command.reason,
        until=datetime.now(UTC) + SHORTAGE_KEPT,
    )
    with database().write() as session:
        session.merge(row)
    return Done()


SHORTAGE_KEPT = timedelta(minutes=10)


def remember_shortages(session: Session, node: Node, reason: str, at: datetime) -> None:
    """Nobody asks again at once for the machine that a job was to have and that came to nothing.

    Of what was short its lease has said so itself; else it would be made and fail for ever.
    """
    if node.machine is None or node.type != NodeType.EPHEMERAL:
        return
    claim = MachineClaim.model_validate(node.machine)
    for offer in claim.offers:
        known = session.get(ShortageRow, (claim.provider_id, offer.scope))
        if known is None or known.until <= at:
            session.merge(
                ShortageRow(
                    provider_id=claim.provider_id,
                    scope=offer.scope,
                    reason=reason,
                    until=at + SHORTAGE_KEPT,
                )
            )
