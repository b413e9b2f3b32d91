"""Providers' lists of machines against the leases: what nobody holds is ended, and told."""

import asyncio

from sqlmodel import col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Lease, Provider
from activities.heartbeats import beating
from activities.lifecycle_requests import workflow_id_of
from activities.providers.base import ProviderError
from activities.providers.registry import DRIVERS, driver_of
from activities.temporal import tell
from workflows.contracts.states import LeaseStatus, ProviderKind, ProviderStatus
from workflows.effects.lifecycle import MachinesSwept, SweepMachines
from workflows.rules.strays import Leased, judge


@activity.defn
async def sweep_machines(_: SweepMachines) -> MachinesSwept:
    """End what carries our mark and no lease holds; have a look taken at what has vanished.

    A provider that cannot be asked does not save the others; it is named in the answer.
    """
    swept = MachinesSwept()
    async with beating():
        for provider_id, kind in await asyncio.to_thread(_providers):
            try:
                found = await asyncio.to_thread(_sweep, provider_id, kind)
            except ProviderError as error:
                activity.logger.warning("%s could not be swept: %s", provider_id, error)
                swept = swept.plus(failed=(f"{provider_id}: {error}",))
                continue
            await _have_looked_at(found.missing)
            swept = swept.plus(**found.model_dump())
    return swept


def _providers() -> list[tuple[str, ProviderKind]]:
    """Those that may have machines of ours, whether they can be used or not."""
    query = select(Provider.id, Provider.kind).where(
        col(Provider.kind).in_([str(kind) for kind in DRIVERS]),
        col(Provider.status) != ProviderStatus.ARCHIVED,
    )
    with database().read() as session:
        return [(provider_id, ProviderKind(kind)) for provider_id, kind in session.exec(query)]


def _sweep(provider_id: str, kind: ProviderKind) -> MachinesSwept:
    """What was found; the end of what nobody holds is asked for, and the next sweep sees to it."""
    driver = driver_of(kind, provider_id)
    owned = {(machine.machine_name, machine.place) for machine in driver.list_owned()}
    verdict = judge(owned, _leases(provider_id, {name for name, _ in owned}))
    swept = MachinesSwept(
        unknown=tuple(name for name, _ in verdict.unknown), missing=verdict.missing
    )
    for name, place in verdict.to_release:
        # Its lease may have come to this place since the list was made.
        if (name, place) not in judge({(name, place)}, _leases(provider_id, {name})).to_release:
            continue
        activity.logger.warning("%s in %s: nobody holds it, it is ended", name, place)
        try:
            driver.release(name, place)
        except ProviderError as error:
            swept = swept.plus(failed=(f"{name} in {place}: {error}",))
        else:
            swept = swept.plus(released=(name,))
    for name, place in verdict.unknown:
        activity.logger.error("%s in %s: carries our mark, and no lease names it", name, place)
    return swept


def _leases(provider_id: str, names: set[str]) -> dict[str, Leased]:
    """Those of the machines that were listed, and all that are ready."""
    listed = sorted(names)
    of_provider = select(Lease).where(col(Lease.provider_id) == provider_id)
    with database().read() as session:
        rows = list(session.exec(of_provider.where(col(Lease.status) == LeaseStatus.READY)))
        for start in range(0, len(listed), _AT_ONCE):
            some = listed[start : start + _AT_ONCE]
            rows += session.exec(of_provider.where(col(Lease.name).in_(some)))
        return {row.name: _leased(row) for row in rows}


_AT_ONCE = 500
"""Names in one question: databases limit how many parameters they take."""


def _leased(row: Lease) -> Leased:
    place = None if row.offer is None else str(row.offer["place"])
    return Leased(lease_id=row.id, place=place, status=LeaseStatus(row.status))


async def _have_looked_at(lease_ids: tuple[str, ...]) -> None:
    for lease_id in lease_ids:
        try:
            await tell(workflow_id_of(lease_id), "look")
        except (RPCError, ApplicationError) as cause:
            # The next sweep comes by in minutes, and it looks by itself as well.
            activity.logger.warning("%s was not told to look: %s", lease_id, cause)
