"""The starts of provider lifecycles, made from their rows."""

from sqlmodel import Session

from activities.db.tables import Provider
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
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
    """The request that adopts a provider: it comes back to the status of its row.

    A provider that was being enabled is enabled from the beginning.
    """
    if row.status == ProviderStatus.ENABLING:
        return request
    update = {
        "resumed_status": ProviderStatus(row.status),
        "resumed_reason": row.status_reason,
        "removal": removal_of(row),
    }
    return request.model_copy(update=update)
