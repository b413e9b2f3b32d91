"""Machines as their providers list them: compared with the leases, and terminated by a person."""

from datetime import datetime

from sqlmodel import select

from activities.db import tables
from activities.db.session import database
from activities.leases.orphaned_machines import Listed, listed_machines
from activities.providers.base import ProviderError, Unavailable
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem
from api.schemas import provider_machines as schemas
from api.services import leases
from api.services.ownership import own, own_locked
from workflows.contracts.machines import OrphanedMachine, TerminateOrphan
from workflows.contracts.statuses import LeaseStatus, ProviderKind, ProviderStatus
from workflows.rules.catalogue.providers import traits_of


def machines_of(caller: Caller, provider_id: str, now: datetime) -> schemas.ProviderMachineList:
    """The machines that a provider lists now; no database session is open during the call.

    Raises: Problem `conflict`, when the provider is archived; `unavailable`, when the provider
    does not answer; `provider-not-ready`, when the provider refuses.
    """
    with database().read() as session:
        row = own(session, tables.Provider, provider_id, caller)
        must_not_be_archived(row)
        kind = ProviderKind(row.kind)
    try:
        found = listed_machines(provider_id, kind)
    except Unavailable as error:
        raise Problem("unavailable", str(error), (), {"Retry-After": "5"}) from error
    except ProviderError as error:
        raise Problem("provider-not-ready", f"provider {provider_id}: {error}") from error
    items = [machine_response(each) for each in found]
    return schemas.ProviderMachineList(provider_id=provider_id, read_at=now, items=items)


def machine_response(found: Listed) -> schemas.ProviderMachine:
    return schemas.ProviderMachine(
        name=found.name,
        zone=found.seen.zone,
        state=found.seen.state,
        provider_machine_id=found.seen.provider_machine_id,
        microcredits_per_hour=found.seen.microcredits_per_hour,
        began_at=found.seen.began_at,
        lease_id=found.lease.lease_id if found.lease else None,
        held=found.is_held,
    )


def end(
    context: ChangeContext, provider_id: str, machine: OrphanedMachine
) -> schemas.MachineEnding:
    """Terminate a machine, by its lease if one holds the machine in that zone, else as an orphan.

    A second call changes nothing.
    """
    row = own_locked(context.session, tables.Provider, provider_id, context.caller)
    must_not_be_archived(row)
    lease = context.session.exec(
        select(tables.Lease).where(
            tables.Lease.provider_id == provider_id, tables.Lease.name == machine.name
        )
    ).first()
    holds = lease is not None and _is_in(lease, machine.zone)
    if lease is not None and holds:
        leases.kill(context, lease.id)
    else:
        asked = TerminateOrphan(machine=machine, requested_by=context.caller.user_id)
        context.tell(provider_id, "terminate_orphan", asked)
    return schemas.MachineEnding(
        provider_id=provider_id,
        name=machine.name,
        zone=machine.zone,
        lease_id=lease.id if lease is not None and holds else None,
    )


def _is_in(lease: tables.Lease, zone: str) -> bool:
    """Whether the lease holds the machine; a marketplace finds it by the name in any zone."""
    if lease.offer is None or LeaseStatus(lease.status).is_final:
        return False
    return traits_of(lease.provider_kind).has_implied_region or lease.offer["zone"] == zone


def must_not_be_archived(row: tables.Provider) -> None:
    """Raises: Problem `conflict`, when the provider is archived."""
    if row.status == ProviderStatus.ARCHIVED:
        raise Problem("conflict", f"provider {row.id}: is archived, and its key is deleted")
