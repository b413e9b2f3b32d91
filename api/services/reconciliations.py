"""Reconciliation when a person asks for it: what providers list, against the leases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from activities.leases.orphaned_machines import Listed, listed_machines
from activities.leases.reconciliation import MOST_REPORTED, leases_of
from activities.providers.base import ProviderError
from activities.providers.registry import kind_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem
from api.schemas import reconciliations as schemas
from api.services.ownership import own
from api.services.provider_machines import machine_response, must_not_be_archived
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound, TerminateOrphan
from workflows.contracts.statuses import ProviderKind, ProviderStatus
from workflows.rules.catalogue.providers import TRAITS
from workflows.rules.leases.reconciliation import Discrepancies, compare


@dataclass(frozen=True, slots=True)
class Found:
    """What one provider listed, before the transaction, and how that differs from the leases."""

    provider: tables.Provider
    read_at: datetime
    listed: Sequence[Listed] = ()
    discrepancies: Discrepancies = field(default_factory=lambda: Discrepancies((), (), ()))
    failure: str | None = None

    def of(self, machines: Sequence[tuple[str, str]]) -> list[Listed]:
        """These of the listed machines."""
        return [each for each in self.listed if (each.name, each.seen.zone) in machines]


def compare_all(caller: Caller, asked: schemas.ReconciliationRequest) -> list[Found] | Problem:
    """What each provider lists now; no database session is open during the calls.

    A provider that does not answer is found with its failure. What is wrong with the request is
    returned, and raised in the transaction.
    """
    try:
        rows = _providers(caller, asked.provider_id)
    except Problem as problem:
        return problem
    return [_compared(row) for row in rows]


def reconcile(
    context: ChangeContext,
    asked: schemas.ReconciliationRequest,
    found: list[Found] | Problem,
) -> schemas.Reconciliation:
    """Have machines without a lease terminated, and leases without a machine look for it.

    Raises: Problem `not-found`; `conflict`, when the provider is archived.
    """
    if isinstance(found, Problem):
        raise found
    context.resource_id = asked.provider_id or context.caller.account_id
    for each in found:
        _act(context, each, end=asked.end)
    return schemas.Reconciliation(end=asked.end, items=[_response(each) for each in found])


def _providers(caller: Caller, provider_id: str | None) -> list[tables.Provider]:
    """The providers whose machines are compared: one, or all that create machines."""
    with database().read() as session:
        if provider_id is not None:
            row = own(session, tables.Provider, provider_id, caller)
            must_not_be_archived(row)
            return [row]
        query = select(tables.Provider).where(
            tables.Provider.account_id == caller.account_id,
            col(tables.Provider.kind).in_(_kinds()),
            col(tables.Provider.status) != ProviderStatus.ARCHIVED,
        )
        return list(session.exec(query.order_by(col(tables.Provider.id))))


def _kinds() -> list[str]:
    """The kinds whose machines a lease ends."""
    return [
        str(kind)
        for kind, traits in TRAITS.items()
        if traits.ends_machines and kind_of(kind).driver is not None
    ]


def _compared(row: tables.Provider) -> Found:
    read_at = datetime.now(UTC)
    if row.kind not in _kinds():
        return Found(row, read_at)
    try:
        listed = listed_machines(row.id, ProviderKind(row.kind))
    except ProviderError as error:
        return Found(row, read_at, failure=str(error))
    owned = {(each.name, each.seen.zone) for each in listed}
    # The leases are read after the list, so that each listed machine has its lease among them.
    leases = leases_of(row.id, {name for name, _ in owned})
    return Found(row, read_at, listed, compare(owned, leases))


def _act(context: ChangeContext, found: Found, *, end: bool) -> None:
    provider_id, discrepancies = found.provider.id, found.discrepancies
    unknown = [OrphanedMachine(name=name, zone=zone) for name, zone in discrepancies.unknown]
    over = [OrphanedMachine(name=name, zone=zone) for name, zone in discrepancies.to_release]
    for machine in (*over, *(unknown if end else ())):
        # The provider's workflow looks again, and leaves a machine that a lease holds by then.
        asked = TerminateOrphan(machine=machine, requested_by=context.caller.user_id)
        context.tell(provider_id, "terminate_orphan", asked)
    if unknown and not end:
        report = OrphanedMachinesFound(machines=tuple(unknown[:MOST_REPORTED]))
        context.tell(provider_id, "orphaned_machines", report)
    for lease_id in discrepancies.missing:
        context.tell(lease_id, "refresh")


def _response(found: Found) -> schemas.ProviderReconciliation:
    row, discrepancies = found.provider, found.discrepancies
    return schemas.ProviderReconciliation(
        provider_id=row.id,
        name=row.name,
        kind=row.kind,
        read_at=found.read_at,
        failure=found.failure,
        machine_count=len(found.listed),
        ending=[machine_response(each) for each in found.of(discrepancies.to_release)],
        unknown=[machine_response(each) for each in found.of(discrepancies.unknown)],
        missing=list(discrepancies.missing),
    )
