"""Starts of region lifecycles, from their rows."""

from sqlmodel import Session

from activities.db.tables import Region
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
from activities.regions.cache import CENTRAL
from workflows.contracts.regions import RegionRequest
from workflows.contracts.statuses import ProviderKind, RegionStatus


def start_region(_: Session, row: Region) -> WorkflowStart[RegionRequest]:
    """The start of a region's workflow."""
    request = RegionRequest(
        region_id=row.id,
        account_id=row.account_id,
        provider_id=row.provider_id,
        provider_kind=ProviderKind(row.provider_kind),
        name=row.name,
        cloud_region=row.cloud_region or "",
        own_worker=row.own_worker,
        central_storage=row.storage_mode == CENTRAL and not row.cloud_region,
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.id, "ProviderKind": row.provider_kind}
    return workflow_start(row, request, found_by)


def resume_region(_: Session, row: Region, request: RegionRequest) -> RegionRequest:
    """The request that adopts a region: it comes back to the status of its row.

    A region that was being provisioned begins anew, and finds what it has created.
    """
    if row.status == RegionStatus.PROVISIONING:
        return request
    update = {
        "resumed_status": RegionStatus(row.status),
        "resumed_reason": row.status_reason,
        "removal": removal_of(row),
    }
    return request.model_copy(update=update)
