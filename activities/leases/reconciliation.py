"""Lease reconciliation: the machines that providers list, compared with the leases."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Lease, Provider
from activities.providers.base import Driver, ProviderError
from activities.providers.call_slots import urgent
from activities.providers.calls import call_provider
from activities.providers.cloud_parts import translated_errors
from activities.providers.notifications import start_listening
from activities.providers.registry import driver_of, kind_of
from activities.temporal.client import tell
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.effects.providers import StartNotifications
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.leases.reconciliation import Leased, compare

Item = TypeVar("Item")
OwnedMachine = tuple[str, str]
"""The name and the zone of a machine."""
NAMES_AT_ONCE = 500
"""Machine names in one query, because databases limit the parameters of a query."""
COMPARED_AT_ONCE = 50
"""Machines whose leases one query reads again before the machines are terminated: so few that no
lease takes one of these zones meanwhile."""
TERMINATED_AT_ONCE = 8
MOST_TERMINATED = 1000
"""Machines that one reconciliation of one provider terminates; the next reconciliation, minutes
later, terminates the others."""
MOST_REPORTED = 100
"""Orphaned machines of one provider that are reported to people by name."""


@activity.defn
async def reconcile_machines(command: ReconcileMachines) -> MachinesReconciled:
    """Terminate machines with our ownership label and no lease; refresh leases without a machine.

    A repeat finds what is left. A lease that cannot be read keeps its machine, and is named.
    Raises: ApplicationError, with the kind of the provider's error as its type.
    """
    began_at = datetime.now(UTC)
    provider_id, kind = command.provider_id, command.provider_kind
    if not traits_of(kind).ends_machines:  # Its machines are never orphans, and list as none.
        await asyncio.to_thread(_keep_instant, provider_id, began_at)
        return MachinesReconciled(reconciled_at=began_at)
    if command.is_ready and (await asyncio.to_thread(kind_of, kind)).notifications is not None:
        start = StartNotifications(provider_id=provider_id, kind=kind)
        await _log_failure(f"provider/{provider_id}/notifications: start", start_listening(start))
    with translated_errors():
        found, orphans = await call_provider(provider_id, partial(_reconcile, provider_id, kind))
    await _notify(provider_id, found, orphans)
    if found.failed:
        return found
    await asyncio.to_thread(_keep_instant, provider_id, began_at)
    return found.model_copy(update={"reconciled_at": began_at})


def _keep_instant(provider_id: str, at: datetime) -> None:
    """Note in the provider's row when the last complete reconciliation began."""
    is_older = col(Provider.reconciled_at).is_(None) | (col(Provider.reconciled_at) < at)
    with database().write() as session:
        session.execute(
            update(Provider)
            .where(col(Provider.id) == provider_id, is_older)
            .values(reconciled_at=at)
        )


def _reconcile(
    provider_id: str, kind: ProviderKind
) -> tuple[MachinesReconciled, Sequence[OwnedMachine]]:
    """Terminate the machines without a lease; return the result and the orphaned machines.

    Termination is requested and not awaited; the next reconciliation finds a machine that remains.
    """
    driver = driver_of(kind, provider_id)
    owned = {(machine.machine_name, machine.zone) for machine in driver.list_owned()}
    leases = leases_of(provider_id, {name for name, _ in owned})
    failed = [f"{each.lease_id}: {each.unreadable}" for each in leases.values() if each.unreadable]
    released = []
    discrepancies = compare(owned, leases)
    for name, zone in discrepancies.unknown:
        activity.logger.error("%s in %s: carries our ownership label, but has no lease", name, zone)
    with ThreadPoolExecutor(TERMINATED_AT_ONCE, thread_name_prefix="leases") as threads:
        for some in _in_pieces(discrepancies.to_release[:MOST_TERMINATED], COMPARED_AT_ONCE):
            # A lease may have moved to one of these zones since the provider listed its machines.
            still = compare(
                set(some), leases_of(provider_id, {name for name, _ in some})
            ).to_release
            errors = threads.map(partial(_terminate, driver), still)
            for (name, zone), error in zip(still, errors, strict=True):
                if error:
                    failed.append(f"{name} in {zone}: {error}")
                else:
                    released.append(name)
    found = MachinesReconciled(
        released=tuple(released),
        unknown=tuple(name for name, _ in discrepancies.unknown),
        missing=discrepancies.missing,
        failed=tuple(failed),
    )
    return found, discrepancies.unknown


def _terminate(driver: Driver, machine: OwnedMachine) -> str:
    """Request the termination of a machine; return the error, or an empty text."""
    name, zone = machine
    activity.logger.warning("%s in %s: has no open lease, is being terminated", name, zone)
    try:
        with urgent():
            driver.terminate(name, zone)
    except ProviderError as error:
        return str(error)
    return ""


def leases_of(provider_id: str, names: set[str]) -> dict[str, Leased]:
    """The leases of a provider by machine name: all with these names, and all ready leases."""
    is_ready = col(Lease.status) == LeaseStatus.READY
    with database().read() as session:
        found = _leased(session, provider_id, is_ready)
        for some in _in_pieces(sorted(names - found.keys()), NAMES_AT_ONCE):
            found |= _leased(session, provider_id, col(Lease.name).in_(some))
        return found


def _leased(session: Session, provider_id: str, which: ColumnElement[bool]) -> dict[str, Leased]:
    kind = session.exec(select(Provider.kind).where(Provider.id == provider_id)).one()
    in_any_zone = traits_of(kind).has_implied_region
    query = select(Lease.id, Lease.name, Lease.status, Lease.offer).where(
        col(Lease.provider_id) == provider_id, which
    )
    return {
        name: _readable(lease_id, status, offer, in_any_zone=in_any_zone)
        for lease_id, name, status, offer in session.exec(query)
    }


def _readable(
    lease_id: str, status: str, offer: Mapping[str, Any] | None, *, in_any_zone: bool
) -> Leased:
    """A lease from its columns; what one of them lacks must not stop the others."""
    try:
        zone = None if offer is None else str(offer["zone"])
        return Leased(lease_id, zone, LeaseStatus(status), in_any_zone=in_any_zone)
    except (KeyError, TypeError, ValueError) as error:
        why = f"its row cannot be read: {type(error).__name__}: {error}"
        return Leased(lease_id, None, LeaseStatus.CREATING, unreadable=why)


def _in_pieces(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def _notify(
    provider_id: str, found: MachinesReconciled, orphans: Sequence[OwnedMachine]
) -> None:
    """Signal the leases whose machine is missing, and report orphaned machines to the provider."""
    for lease_id in found.missing:
        await _log_failure(f"{lease_id}: refresh", tell(workflow_id_of(lease_id), "refresh"))
    if orphans:
        machines = tuple(OrphanedMachine(name=name, zone=zone) for name, zone in orphans)
        message = OrphanedMachinesFound(machines=machines[:MOST_REPORTED])
        signal = tell(workflow_id_of(provider_id), "orphaned_machines", message)
        await _log_failure(f"{provider_id}: orphaned machines", signal)


async def _log_failure(what: str, call: Awaitable[object]) -> None:
    """Await a call, and only log its failure: the next reconciliation repeats it in minutes."""
    try:
        await call
    except (RPCError, ApplicationError) as cause:
        activity.logger.warning("%s: %s", what, cause)
