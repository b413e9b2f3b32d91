"""Lease reconciliation: the machines that providers list, compared with the leases."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Lease, Provider
from activities.providers.base import Driver, ProviderError
from activities.providers.machines import provider_threads
from activities.providers.notifications import start_listening
from activities.providers.registry import driver_of, kind_of
from activities.temporal.client import tell
from activities.temporal.heartbeats import heartbeating
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound
from workflows.contracts.statuses import LeaseStatus, ProviderKind, ProviderStatus
from workflows.effects.providers import StartNotifications
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines
from workflows.rules.catalogue.providers import cloud_kinds
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


@dataclass(frozen=True)
class _CloudProvider:
    """A provider that may have machines with our ownership label."""

    id: str
    kind: ProviderKind
    is_ready: bool
    has_feed: bool
    """Whether the provider sends notifications of its machines."""


@activity.defn
async def reconcile_machines(_: ReconcileMachines) -> MachinesReconciled:
    """Terminate machines with our ownership label and no lease; refresh leases without a machine.

    A provider that cannot be reached does not stop the others; the answer names this provider.
    """
    result = MachinesReconciled()
    async with heartbeating():
        for provider in await asyncio.to_thread(_providers):
            if provider.is_ready and provider.has_feed:
                start = StartNotifications(provider_id=provider.id, kind=provider.kind)
                await _log_failure(
                    f"provider/{provider.id}/notifications: start", start_listening(start)
                )
            try:
                found, orphans = await asyncio.get_running_loop().run_in_executor(
                    provider_threads(), _reconcile, provider.id, provider.kind
                )
            except ProviderError as error:
                activity.logger.warning("%s could not be reconciled: %s", provider.id, error)
                result = result.plus(failed=(f"{provider.id}: {error}",))
                continue
            await _notify(provider.id, found, orphans)
            result = result.plus(**found.model_dump())
    return result


def _providers() -> list[_CloudProvider]:
    """Providers of clouds, usable or not; also archived providers with open leases."""
    has_leases = (
        select(Lease.id)
        .where(
            col(Lease.provider_id) == col(Provider.id),
            col(Lease.status).not_in([status for status in LeaseStatus if status.is_final]),
        )
        .exists()
    )
    query = select(Provider.id, Provider.kind, Provider.status).where(
        col(Provider.kind).in_(cloud_kinds()),
        (col(Provider.status) != ProviderStatus.ARCHIVED) | has_leases,
    )
    with database().read() as session:
        found = [(*row, kind_of(row[1])) for row in session.exec(query)]
    return [
        _CloudProvider(
            id=provider_id,
            kind=kind.kind,
            is_ready=status == ProviderStatus.READY,
            has_feed=kind.notifications is not None,
        )
        for provider_id, _, status, kind in found
        if kind.driver is not None
    ]


def _reconcile(
    provider_id: str, kind: ProviderKind
) -> tuple[MachinesReconciled, Sequence[OwnedMachine]]:
    """Terminate the machines without a lease; return the result and the orphaned machines.

    Termination is requested and not awaited; the next reconciliation finds a machine that remains.
    """
    driver = driver_of(kind, provider_id)
    owned = {(machine.machine_name, machine.zone) for machine in driver.list_owned()}
    discrepancies = compare(owned, leases_of(provider_id, {name for name, _ in owned}))
    result = MachinesReconciled(
        unknown=tuple(name for name, _ in discrepancies.unknown), missing=discrepancies.missing
    )
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
                failed = (f"{name} in {zone}: {error}",)
                outcome = {"failed": failed} if error else {"released": (name,)}
                result = result.plus(**outcome)
    return result, discrepancies.unknown


def _terminate(driver: Driver, machine: OwnedMachine) -> str:
    """Request the termination of a machine; return the error, or an empty text."""
    name, zone = machine
    activity.logger.warning("%s in %s: has no open lease, is being terminated", name, zone)
    try:
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
    query = select(Lease.id, Lease.name, Lease.status, Lease.offer).where(
        col(Lease.provider_id) == provider_id, which
    )
    return {
        name: Leased(
            lease_id=lease_id,
            zone=None if offer is None else str(offer["zone"]),
            status=LeaseStatus(status),
        )
        for lease_id, name, status, offer in session.exec(query)
    }


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
