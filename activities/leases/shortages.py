"""Shortages of providers, remembered for all jobs."""

from datetime import UTC, datetime, timedelta

from sqlmodel import Session, col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Node, Provider, ShortageRow
from workflows.contracts.base import Done
from workflows.contracts.machines import MachineClaim, Shortage
from workflows.contracts.statuses import NodeType
from workflows.effects.machines import (
    FindShortages,
    RememberShortage,
    ShortagesFound,
)
from workflows.rules.catalogue.providers import traits_of


def shortage_kept(provider_kind: str) -> timedelta:
    """How long a shortage at a provider of this kind is remembered."""
    return timedelta(seconds=traits_of(provider_kind).shortage_limit_s)


@activity.defn
def find_shortages(command: FindShortages) -> ShortagesFound:
    """The shortages of a provider at this moment."""
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
    """Remember a shortage for all jobs; it replaces an older one of the same scope."""
    with database().write() as session:
        provider = session.get(Provider, command.provider_id)
        kept = shortage_kept(provider.kind if provider is not None else "")
        if command.kept_s is not None:
            kept = timedelta(seconds=command.kept_s)
        row = ShortageRow(
            provider_id=command.provider_id,
            scope=command.scope,
            reason=command.reason,
            until=datetime.now(UTC) + kept,
        )
        session.merge(row)
    return Done()


def remember_shortages(session: Session, node: Node, reason: str, at: datetime) -> None:
    """Remember all offers of a node whose machine failed to be created, so that no job asks for
    them again at once.

    Otherwise such machines would be created and fail for ever. Shortages that the lease itself has
    reported are kept as they are.
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
                    until=at + shortage_kept(claim.provider_kind),
                )
            )
