"""The starts of provider lifecycles, made from their rows."""

from sqlmodel import Session

from activities.db.tables import Provider
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.statuses import ProviderKind, ProviderStatus


def start_provider(_: Session, row: Provider) -> WorkflowStart[ProviderRequest]:
    """The start of a provider's workflow."""
    request = ProviderRequest(
        provider_id=row.id,
        account_id=row.account_id,
        kind=ProviderKind(row.kind),
        sequence=row.sequence,
        reconciled_at=row.reconciled_at,
    )
    return workflow_start(row, request, {"ProviderKind": row.kind})


def resume_provider(_: Session, row: Provider, request: ProviderRequest) -> ProviderRequest:
    """The request that resumes a provider; during a removal it resumes as ready."""
    status = ProviderStatus(row.status)
    resumed = ProviderStatus.READY if status is ProviderStatus.REMOVING else status
    return request.model_copy(update={"resumed_status": resumed})
