"""Starts of region lifecycles, from their rows."""

from sqlmodel import Session

from activities.db.tables import Region
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
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
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.id, "ProviderKind": row.provider_kind}
    return workflow_start(row, request, found_by)


def resume_region(_: Session, row: Region, request: RegionRequest) -> RegionRequest:
    """The request of a region whose workflow is restarted, with the status before its removal."""
    status = RegionStatus(row.status)
    resumed = RegionStatus.HEALTHY if status is RegionStatus.REMOVING else status
    return request.model_copy(update={"resumed_status": resumed})
