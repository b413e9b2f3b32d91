"""Starts of federated lifecycles from their rows."""

from sqlmodel import Session

from activities.db.tables import FederatedJob
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from workflows.contracts.federation import FederatedRequest, FederatedStatus


def start_federated(_: Session, row: FederatedJob) -> WorkflowStart[FederatedRequest]:
    """The start of a federated job's workflow."""
    request = FederatedRequest(
        federated_id=row.id,
        account_id=row.account_id,
        consumer_account_id=row.consumer_account_id,
        project_id=row.project_id,
        job_id=row.job_id,
        name=row.name,
        sequence=row.sequence,
    )
    return workflow_start(row, request, {"ProjectId": row.project_id, "JobType": row.type})


def resume_federated(_: Session, row: FederatedJob, request: FederatedRequest) -> FederatedRequest:
    """The request that adopts a federated job: it reviews both parties and its job anew."""
    update = {
        "resumed_status": FederatedStatus(row.status),
        "resumed_reason": row.status_reason,
    }
    return request.model_copy(update=update)
