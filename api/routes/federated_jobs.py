"""Federated jobs: the model of one account at the data and on the machines of another one."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query
from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.federated_jobs import FederatedJob, FederatedJobPage
from api.services import federated_jobs
from api.services.lifecycles import status_codes
from workflows.contracts.federation import FederatedStatus

router = APIRouter(prefix="/v1/federated-jobs", tags=["federated jobs"])
Reader = Annotated[Caller, Depends(Needs("federated-jobs:read"))]
Writer = Annotated[Change, changing("federated-jobs:write")]
_SUBMISSION = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobSubmission"}}},
    }
}


@dataclass(frozen=True, slots=True)
class Subjects:
    """What the federated jobs of a list are about; None: anything."""

    project_id: str | None
    model_id: str | None
    consumer_account_id: str | None


def _subjects(
    project_id: str | None = None,
    model_id: str | None = None,
    consumer_account_id: str | None = None,
) -> Subjects:
    return Subjects(project_id, model_id, consumer_account_id)


@router.get("", operation_id="list_federated_jobs")
def list_federated_jobs(
    caller: Reader,
    paging: Paging,
    about: Annotated[Subjects, Depends(_subjects)],
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> FederatedJobPage:
    """The federated jobs that the account has created, and those that it is the consumer of."""
    table = tables.FederatedJob
    wanted = status_codes(status or (), FederatedStatus)
    rows = select(table).where(federated_jobs.visible_federated(caller))
    if wanted:
        rows = rows.where(col(table.status).in_(wanted))
    for column, value in (
        (table.project_id, about.project_id),
        (table.model_id, about.model_id),
        (table.consumer_account_id, about.consumer_account_id),
    ):
        if value is not None:
            rows = rows.where(column == value)
    with database().read() as session:
        view = (
            col(table.id),
            lambda found: federated_jobs.federated_responses(session, caller, found),
        )
        return page(session, FederatedJobPage, rows, paging, view)


@router.post("", status_code=202, operation_id="create_federated_job", openapi_extra=_SUBMISSION)
async def create_federated_job(document: Annotated[Any, Body()], change: Writer) -> FederatedJob:
    """Run a model of the account in the project of another one, at that one's data.

    The document is that of a job: `project_id` is the consumer's project, and `data.model` is the
    model, which stays sealed there. The answer to a wrong document names all of its mistakes.
    """
    asked = await run_in_threadpool(federated_jobs.read_federated, document)
    return await change.apply(
        FederatedJob, lambda context: federated_jobs.create_federated_job(context, asked)
    )


@router.get("/{federated_id}", operation_id="get_federated_job")
def get_federated_job(federated_id: str, caller: Reader) -> FederatedJob:
    """A federated job, for both parties."""
    with database().read() as session:
        row = federated_jobs.visible_federated_job(session, caller, federated_id)
        return federated_jobs.federated_response(session, caller, row)


@router.post("/{federated_id}/cancel", status_code=202, operation_id="cancel_federated_job")
async def cancel_federated_job(federated_id: str, change: Writer) -> FederatedJob:
    """End a federated job, whichever party asks; its model is withdrawn after that."""
    return await change.apply(
        FederatedJob,
        lambda context: federated_jobs.cancel_federated_job(context, federated_id),
    )
