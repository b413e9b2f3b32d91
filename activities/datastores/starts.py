"""Starts of datastore lifecycles, from their rows."""

from sqlmodel import Session

from activities.db.tables import Datastore
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
from workflows.contracts.datastores import DatastoreRequest, DatastoreStatus


def start_datastore(_: Session, row: Datastore) -> WorkflowStart[DatastoreRequest]:
    """The start of a datastore's workflow."""
    request = DatastoreRequest(
        datastore_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        sequence=row.sequence,
    )
    return workflow_start(row, request, {"RegionId": row.region_id})


def resume_datastore(_: Session, row: Datastore, request: DatastoreRequest) -> DatastoreRequest:
    """The request that adopts a datastore: it comes back to the status of its row."""
    update = {
        "resumed_status": DatastoreStatus(row.status),
        "resumed_reason": row.status_reason,
        "removal": removal_of(row),
    }
    return request.model_copy(update=update)
