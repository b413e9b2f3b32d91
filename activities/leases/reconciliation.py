"""Providers' lists of machines against the leases: what nobody holds is ended, and told."""

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
"""(machine name, place)."""
NAMES_AT_ONCE = 500
"""In one question: databases limit how many parameters they take."""
JUDGED_AT_ONCE = 50
"""Machines that are looked up once more before they are ended, in one question: few enough that
none of their leases comes to their place meanwhile."""
ENDED_AT_ONCE = 8
MOST_ENDED = 1000
"""By one sweep of one provider: the next one, minutes later, ends the others."""
MOST_TOLD = 100
"""Unknown machines of one provider that people are told of by name."""


@dataclass(frozen=True)
class Swept:
    """A provider that may have machines of ours."""

    id: str
    kind: ProviderKind
    is_ready: bool
    has_feed: bool
    """It tells of its machines by itself."""


@activity.defn
async def reconcile_machines(_: ReconcileMachines) -> MachinesReconciled:
    """Terminate machines with our ownership label and no lease; refresh leases without a machine.

    A provider that cannot be asked does not save the others; it is named in the answer.
    """
    swept = MachinesReconciled()
    async with heartbeating():
        for provider in await asyncio.to_thread(_providers):
            if provider.is_ready and provider.has_feed:
                news = StartNotifications(provider_id=provider.id, kind=provider.kind)
                await _quietly(
                    f"provider/{provider.id}/notifications: start", start_listening(news)
                )
            try:
                found, unknown = await asyncio.get_running_loop().run_in_executor(
                    provider_threads(), _sweep, provider.id, provider.kind
                )
            except ProviderError as error:
                activity.logger.warning("%s could not be swept: %s", provider.id, error)
                swept = swept.plus(failed=(f"{provider.id}: {error}",))
                continue
            await _tell(provider.id, found, unknown)
            swept = swept.plus(**found.model_dump())
    return swept


def _providers() -> list[Swept]:
    """Whether they can be used or not; also those that are gone and have left something."""
    holds = (
        select(Lease.id)
        .where(
            col(Lease.provider_id) == col(Provider.id),
            col(Lease.status).not_in([status for status in LeaseStatus if status.is_final]),
        )
        .exists()
    )
    query = select(Provider.id, Provider.kind, Provider.status).where(
        col(Provider.kind).in_(cloud_kinds()),
        (col(Provider.status) != ProviderStatus.ARCHIVED) | holds,
    )
    with database().read() as session:
        found = [(*row, kind_of(row[1])) for row in session.exec(query)]
    return [
        Swept(
            id=provider_id,
            kind=kind.kind,
            is_ready=status == ProviderStatus.READY,
            has_feed=kind.notifications is not None,
        )
        for provider_id, _, status, kind in found
        if kind.driver is not None
    ]


def _sweep(
    provider_id: str, kind: ProviderKind
) -> tuple[MachinesReconciled, Sequence[OwnedMachine]]:
    """What was found, and what is unknown; what nobody holds was asked to end, and the next sweep
    sees to it."""
    driver = driver_of(kind, provider_id)
    owned = {(machine.machine_name, machine.zone) for machine in driver.list_owned()}
    discrepancies = compare(owned, leases_of(provider_id, {name for name, _ in owned}))
    swept = MachinesReconciled(
        unknown=tuple(name for name, _ in discrepancies.unknown), missing=discrepancies.missing
    )
    for name, zone in discrepancies.unknown:
        activity.logger.error(
            "%s in %s: carries our ownership label, and no lease names it", name, zone
        )
    with ThreadPoolExecutor(ENDED_AT_ONCE, thread_name_prefix="leases") as threads:
        for some in _in_pieces(discrepancies.to_release[:MOST_ENDED], JUDGED_AT_ONCE):
            # A lease may have come to one of these places since the list was made.
            still = compare(
                set(some), leases_of(provider_id, {name for name, _ in some})
            ).to_release
            ended = zip(still, threads.map(partial(_end, driver), still), strict=True)
            for (name, zone), why in ended:
                told = {"failed": (f"{name} in {zone}: {why}",)} if why else {"released": (name,)}
                swept = swept.plus(**told)
    return swept, discrepancies.unknown


def _end(driver: Driver, machine: OwnedMachine) -> str:
    """Why its end could not be asked for; empty: it was."""
    name, zone = machine
    activity.logger.warning("%s in %s: nobody holds it, it is ended", name, zone)
    try:
        driver.terminate(name, zone)
    except ProviderError as error:
        return str(error)
    return ""


def leases_of(provider_id: str, names: set[str]) -> dict[str, Leased]:
    """Of a provider, by machine name: those with these names, and all that are ready."""
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


async def _tell(
    provider_id: str, found: MachinesReconciled, unknown: Sequence[OwnedMachine]
) -> None:
    """Workflows that what they hold has vanished, people that something is there."""
    for lease_id in found.missing:
        await _quietly(f"{lease_id}: refresh", tell(workflow_id_of(lease_id), "refresh"))
    if unknown:
        machines = tuple(OrphanedMachine(name=name, zone=zone) for name, zone in unknown)
        told = OrphanedMachinesFound(machines=machines[:MOST_TOLD])
        telling = tell(workflow_id_of(provider_id), "orphaned_machines", told)
        await _quietly(f"{provider_id}: unknown machines", telling)


async def _quietly(what: str, call: Awaitable[object]) -> None:
    """The next sweep comes by in minutes."""
    try:
        await call
    except (RPCError, ApplicationError) as cause:
        activity.logger.warning("%s: %s", what, cause)
