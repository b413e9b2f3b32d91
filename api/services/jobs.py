"""Jobs: how they are listed, ended, started again and removed."""

from collections.abc import Sequence

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from activities.artifacts.uses import copies_of_output
from activities.db import tables
from activities.jobs.submissions import submission_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import jobs as schemas
from api.services.job_responses import ENDED, job_response
from api.services.job_submissions import check_balance, check_room, known_gpu_types
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import projects_of, visible_job, visible_jobs
from workflows.contracts.jobs import EndRequest
from workflows.contracts.lifecycles import noun_of
from workflows.contracts.statuses import JobStatus, JobType
from workflows.rules.jobs.labels import asked_label
from workflows.rules.jobs.resources import resources_of

_COPIES_SHOWN = 5


def _changed_job(context: ChangeContext, job_id: str) -> tables.Job:
    """The job that the change is about, of the account or of a project that is shared."""
    row = visible_job(context.session, context.caller, job_id, "all")
    context.concerned_account_id = row.account_id
    return row


def cancel_job(context: ChangeContext, job_id: str, *, discards: bool) -> schemas.Job:
    """discards: whether the output is not stored; also of a job that was canceled before."""
    row = _changed_job(context, job_id)
    _must_be_open(row, "canceled")
    end = _end(context).model_copy(update={"discards": discards})
    context.tell(row.id, "cancel", end)
    return job_response(context.session, context.caller, row)


def stop_job(context: ChangeContext, job_id: str) -> schemas.Job:
    """Stop a notebook or endpoint, which can be started again.

    Raises: Problem `conflict`, when the job is of another type or has ended.
    """
    row = _changed_job(context, job_id)
    if not JobType(row.type).is_service:
        raise Problem("conflict", f"job {row.name}: is of type {row.type}; cancel it instead")
    _must_be_open(row, "stopped")
    # Also where it is stopped, because a request to start it again may be on its way.
    context.tell(row.id, "stop", _end(context))
    return job_response(context.session, context.caller, row)


def start_job(context: ChangeContext, job_id: str) -> schemas.Job:
    """Start a stopped notebook or endpoint again, or end the pause before a retry of any job.

    Raises: Problem `conflict`, when the job neither is stopped nor pauses; `storage-exhausted`,
    when it is stopped and its account has no room for what it stores.
    """
    row = _changed_job(context, job_id)
    if row.status != JobStatus.STOPPED and row.retry_at is None:
        raise wrong_state("job", row, "stopped to start again")
    if row.status == JobStatus.STOPPED:
        check_room(context.session, row.account_id)
    known = known_gpu_types(context.session)
    submission = submission_of(row.spec)
    check_balance(context.session, row.account_id, resources_of(submission, known))
    context.tell(row.id, "start_again")
    return job_response(context.session, context.caller, row)


def remove_job(context: ChangeContext, job_id: str) -> schemas.Job:
    """Remove a job that has ended; a second call changes nothing.

    Raises: Problem `conflict`, when the job has not ended, or its output is being copied.
    """
    row = _changed_job(context, job_id)
    if row.status == JobStatus.STOPPED or (row.status in ENDED and row.status not in GONE):
        _must_not_be_copied(context.session, row)
    if row.status == JobStatus.STOPPED:
        context.tell(row.id, "remove")
    elif row.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED):
        context.start(row.id, {"removal": True})
    elif row.status not in GONE:
        raise wrong_state("job", row, "ended to be removed: cancel it first")
    return job_response(context.session, context.caller, row)


def kill_all(context: ChangeContext) -> schemas.JobsKilled:
    """Cancel every open job of the account."""
    context.resource_id = context.caller.account_id
    rows = context.session.exec(
        select(tables.Job).where(
            tables.Job.account_id == context.caller.account_id,
            col(tables.Job.status).not_in((*ENDED, *GONE)),
        )
    ).all()
    for row in rows:
        context.tell(row.id, "cancel", _end(context))
    return schemas.JobsKilled(job_ids=[row.id for row in rows])


def _must_not_be_copied(session: Session, row: tables.Job) -> None:
    """Raises: Problem `conflict`, while artifacts are made of the job's output."""
    if copies := copies_of_output(session, row):
        named = ", ".join(f"{noun_of(each.id).name} {each.name}" for each in copies[:_COPIES_SHOWN])
        raise Problem("conflict", f"job {row.name}: its output is being copied to {named}")


def _must_be_open(row: tables.Job, deed: str) -> None:
    if row.status in (*ENDED, *GONE):
        raise Problem("conflict", f"job {row.name}: is {row.status}; cannot be {deed}")


def _end(context: ChangeContext) -> EndRequest:
    return EndRequest(reason=f"asked for by {context.caller.user_id}")


def jobs_of(
    session: Session, caller: Caller, labels: Sequence[str] = ()
) -> SelectOfScalar[tables.Job]:
    """The query for all jobs that a caller may list, and that have all of these labels.

    labels: each `KEY=VALUE`, or `KEY` for any value.
    Raises: Problem `invalid-request`, for a label that no job can have.
    """
    rows = select(tables.Job).where(visible_jobs(session, caller))
    if not labels:
        return rows
    shared = projects_of(session, caller, "job", "read")
    owners = select(tables.Project.account_id).where(col(tables.Project.id).in_(shared))
    account_ids = {caller.account_id, *session.exec(owners)}
    for index, text in enumerate(labels):
        try:
            key, value = asked_label(text)
        except ValueError as cause:
            raise invalid(field_error(f"label.{index}", str(cause), text)) from cause
        having = select(tables.JobLabel.job_id).where(
            col(tables.JobLabel.account_id).in_(account_ids), tables.JobLabel.key == key
        )
        if value is not None:
            having = having.where(tables.JobLabel.value == value)
        rows = rows.where(col(tables.Job.id).in_(having))
    return rows
