"""Starts of lease lifecycles from their rows, and their progress after a restart."""

from sqlmodel import Session

from activities.db.tables import Lease, Region
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from workflows.contracts.leases import LeaseProgress, LeaseRelease, LeaseRequest, ReleaseProgress
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind


def start_lease(session: Session, row: Lease) -> WorkflowStart[LeaseRequest]:
    """The start of a lease's workflow."""
    region = session.get(Region, row.region_id)
    request = LeaseRequest(
        lease_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        own_worker=session.get_one(Region, row.region_id).own_worker,
        provider_id=row.provider_id,
        provider_kind=ProviderKind(row.provider_kind),
        machine_name=row.name,
        holder_id=row.holder_id,
        offers=tuple(MachineOffer.model_validate(offer) for offer in row.offers),
        spec=MachineSpec.model_validate(row.spec),
        price_cap_microcredits_per_hour=row.price_cap_microcredits_per_hour,
        deadline=row.deadline,
        uses_internal_addresses=region is not None and region.uses_internal_addresses,
        sequence=row.sequence,
    )
    found_by = {
        "LeaseId": row.id,
        "RegionId": row.region_id,
        "ProviderKind": row.provider_kind,
    }
    return workflow_start(row, request, found_by)


def resume_lease(_: Session, row: Lease, request: LeaseRequest) -> LeaseRequest:
    """The request of a lease whose workflow is restarted from its row.

    The workflow first looks for the machine that was being created, or checks the ready machine.
    """
    observation = None
    if row.host is not None or row.provider_machine_id is not None:
        observation = MachineObservation(
            state=MachineState.MAKING if row.host is None else MachineState.RUNNING,
            zone=(row.offer or {}).get("zone", ""),
            provider_machine_id=row.provider_machine_id,
            host=row.host,
            port=row.port,
            user=row.user,
            minion_id=row.minion_id,
            microcredits_per_hour=row.microcredits_per_hour,
            began_at=row.began_at,
        )
    status = LeaseStatus(row.status)
    ending = _ending_of(row)
    resumed_from = LeaseProgress(
        sequence=row.sequence,
        status=status,
        offer=None if row.offer is None else MachineOffer.model_validate(row.offer),
        seen=observation,
        was_ready=ending.was_ready if ending else status is LeaseStatus.READY,
        released=ending.released if ending else None,
        lost=ending.lost if ending else None,
        earlier_microcredits=row.earlier_microcredits,
        reason=row.status_reason,
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _ending_of(row: Lease) -> ReleaseProgress | None:
    """Why the lease is being released; None: it is not."""
    if row.status != LeaseStatus.RELEASING:
        return None
    if row.ending is not None:
        return ReleaseProgress.model_validate(row.ending)
    reason = row.status_reason or "the release is continued"
    return ReleaseProgress(was_ready=True, released=LeaseRelease(reason=reason))
