"""Jobs: submit, read, stop, start again, cancel and remove them."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query
from sqlmodel import col
from starlette.concurrency import run_in_threadpool

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.jobs import (
    Job,
    JobArray,
    JobCharges,
    JobMeasurements,
    JobPage,
    JobPlacement,
    JobsKilled,
)
from api.schemas.offers import JobPreview
from api.services import billing, job_responses, job_submissions, jobs, measurements, offers
from api.services.lifecycles import status_codes
from api.services.ownership import visible_job
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.labels import MAX_LABELS

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Reader = Annotated[Caller, Depends(Needs("jobs:read"))]
Submitter = Annotated[Caller, Depends(Needs("jobs:write"))]
Writer = Annotated[Change, changing("jobs:write")]
MOST_RUNS = 1_000_000
_SUBMISSION = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobSubmission"}}},
    }
}


@router.get("", operation_id="list_jobs")
def list_jobs(
    caller: Reader,
    paging: Paging,
    status: Annotated[list[str] | None, Query(max_length=20)] = None,
    project_id: str | None = None,
    label: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None,
        Query(max_length=MAX_LABELS, description="`KEY=VALUE`, or `KEY`; all that are given."),
    ] = None,
) -> JobPage:
    """Jobs of the account and of projects that its user is a member of; archived ones by status."""
    wanted = status_codes(status or (), JobStatus)
    with database().read() as session:
        rows = jobs.jobs_of(session, caller, label or ())
        state = col(tables.Job.status)
        rows = rows.where(state.in_(wanted) if wanted else state != "archived")
        if project_id is not None:
            rows = rows.where(tables.Job.project_id == project_id)
        return page(
            session,
            JobPage,
            rows,
            paging,
            (col(tables.Job.id), lambda found: job_responses.job_responses(session, caller, found)),
        )


@router.post("", status_code=202, operation_id="submit_job", openapi_extra=_SUBMISSION)
async def submit_job(document: Annotated[Any, Body()], change: Writer) -> Job:
    """Submit a job. The answer to a wrong document names all of its mistakes."""
    asked = await run_in_threadpool(job_submissions.read_document, document)
    return await change.apply(Job, lambda context: job_submissions.submit_job(context, asked))


@router.post("/preview", operation_id="preview_job", openapi_extra=_SUBMISSION)
def preview_job(document: Annotated[Any, Body()], caller: Submitter) -> JobPreview:
    """Check a job and say where it would go now, without submitting it: nothing is written.

    The uploads that it names are not looked for.
    """
    with database().read() as session:
        return offers.preview(session, caller, document, datetime.now(UTC))


@router.post("/arrays", status_code=202, operation_id="submit_job_array", openapi_extra=_SUBMISSION)
async def submit_job_array(document: Annotated[Any, Body()], change: Writer) -> JobArray:
    """Submit all jobs of an array, a document with `array`, in one transaction."""
    asked = await run_in_threadpool(job_submissions.read_document, document)
    return await change.apply(
        JobArray, lambda context: job_submissions.submit_array(context, asked)
    )


@router.post("/kill-all", status_code=202, operation_id="kill_all_jobs")
async def kill_all_jobs(change: Writer) -> JobsKilled:
    """Cancel every open job of the account."""
    return await change.apply(JobsKilled, jobs.kill_all)


@router.get("/{job_id}", operation_id="get_job")
def get_job(job_id: str, caller: Reader) -> Job:
    with database().read() as session:
        return job_responses.job_response(session, caller, visible_job(session, caller, job_id))


@router.post("/{job_id}/stop", status_code=202, operation_id="stop_job")
async def stop_job(job_id: str, change: Writer) -> Job:
    """End the command of a notebook or endpoint, which can be started again."""
    return await change.apply(Job, lambda context: jobs.stop_job(context, job_id))


@router.post("/{job_id}/start", status_code=202, operation_id="start_job")
async def start_job(job_id: str, change: Writer) -> Job:
    """Start a stopped notebook or endpoint again, or a job at once that pauses before a retry."""
    return await change.apply(Job, lambda context: jobs.start_job(context, job_id))


@router.post("/{job_id}/resubmit", status_code=202, operation_id="resubmit_job")
async def resubmit_job(job_id: str, change: Writer) -> Job:
    """Submit the same job again, in any status, as a new job with the same code and variables."""
    again = await run_in_threadpool(job_submissions.document_again, change.caller, job_id)
    asked = await run_in_threadpool(job_submissions.read_document, again.document)
    return await change.apply(
        Job, lambda context: job_submissions.resubmit_job(context, asked, again.numbers)
    )


@router.post("/{job_id}/cancel", status_code=202, operation_id="cancel_job")
async def cancel_job(
    job_id: str,
    change: Writer,
    discard: Annotated[bool, Query(description="Store no output, only the log.")] = False,
) -> Job:
    """Cancel a job, whatever its status is; a canceled job cannot be started again.

    What it has written until its end is stored, unless `discard` is true.
    """
    return await change.apply(
        Job, lambda context: jobs.cancel_job(context, job_id, discards=discard)
    )


@router.delete("/{job_id}", status_code=202, operation_id="remove_job")
async def remove_job(job_id: str, change: Writer) -> Job:
    """Remove a job that has ended, with its log and output; its charges stay."""
    return await change.apply(Job, lambda context: jobs.remove_job(context, job_id))


@router.get("/{job_id}/charges", operation_id="get_job_charges")
def get_job_charges(job_id: str, caller: Reader) -> JobCharges:
    with database().read() as session:
        return billing.charges_of(session, visible_job(session, caller, job_id))


@router.get("/{job_id}/measurements", operation_id="get_job_measurements")
def get_job_measurements(
    job_id: str,
    caller: Reader,
    attempt: Annotated[int | None, Query(ge=1, le=MOST_RUNS)] = None,
    worker: Annotated[int | None, Query(ge=0, le=MOST_RUNS)] = None,
) -> JobMeasurements:
    """What the node, its supervisor and the control plane have measured, and what is posted.

    For whoever may read the job or pays for it, and for the account of the node, which sees its own
    runs and earnings only.
    """
    with database().read() as session:
        return measurements.measurements_of(
            session, caller, job_id, measurements.Runs(attempt, worker)
        )


@router.get("/{job_id}/placement", operation_id="get_job_placement")
def get_job_placement(job_id: str, caller: Reader) -> JobPlacement:
    """Why the job waits, or on which nodes it was placed."""
    with database().read() as session:
        return job_responses.placement_response(session, visible_job(session, caller, job_id))
