"""Jobs: their responses, and how they are submitted, ended, started again and removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from activities.accounts.stored_bytes import refusal_of_job
from activities.billing import payers
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import database
from activities.jobs.submissions import (
    open_variables,
    sealed_variables,
    stored_spec,
    submission_of,
)
from activities.placement.refusals import refusals_of_jobs
from activities.settings import settings
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import jobs as schemas
from api.services.account_limits import check_limit
from api.services.job_figures import JobFigures
from api.services.job_references import personal_project, wrong_references
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import lifecycle, project_for, visible_job, visible_jobs
from workflows.contracts.billing import MICROCREDITS
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import EndRequest
from workflows.contracts.placement import Resources
from workflows.contracts.statuses import JobStatus, JobType, NodeStatus
from workflows.rules.jobs.arrays import INDEX, SIZE, jobs_of_array, with_variables
from workflows.rules.jobs.formats import secret_reference
from workflows.rules.jobs.resources import demand_key, resources_of
from workflows.rules.jobs.submission import Reading, read_submission
from workflows.rules.placement.cloud_refusals import BEING_MADE

MASK = "********"
GPUS_MISSING = {"gpu-type", "gpu-count", "shortage", "quota", BEING_MADE, "no-offers"}
"""Codes of refusals for which a job that asks for GPUs waits for these."""
ENDED = tuple(status.value for status in JobStatus if status.is_final)


def job_responses(
    session: Session, caller: Caller, rows: Sequence[tables.Job]
) -> list[schemas.Job]:
    """The jobs of these rows as a caller may see them, with the refusals of those that wait."""
    figures = JobFigures(session, caller, rows)
    return [_job_response(row, figures) for row in rows]


def job_response(session: Session, caller: Caller, row: tables.Job) -> schemas.Job:
    return job_responses(session, caller, [row])[0]


def _job_response(row: tables.Job, figures: JobFigures) -> schemas.Job:
    spec = submission_of(row.spec)
    masked = dict.fromkeys(spec.environment.variables, MASK)
    refusals, accrued = figures.refusals[row.id], figures.accrued[row.id]
    waits = row.status == JobStatus.WAITING_FOR_RESOURCES
    created = [refusal["detail"] for refusal in refusals if refusal["code"] == BEING_MADE]
    reason = created[0] if waits and created else figures.people.named(row.status_reason)
    started_at, elapsed_s = figures.elapsed(row)
    return schemas.Job(
        **lifecycle(row) | {"status_reason": reason},
        status_label=_status_label(row, spec, refusals),
        type=row.type,
        project_id=row.project_id,
        creator_user_id=row.creator_user_id,
        creator_account_id=row.creator_account_id,
        priority=row.priority,
        attempt=row.attempt,
        retries=row.retries,
        retry_at=row.retry_at,
        resources=spec.resources,
        environment=spec.environment.model_copy(update={"variables": masked}),
        code=spec.code,
        data=spec.data,
        commands=list(spec.workers),
        placement=spec.placement,
        safety=spec.safety,
        port=spec.port,
        workers=[figures.worker(row, worker, spec.port) for worker in row.workers],
        placement_refusals=[schemas.PlacementRefusal(**found) for found in refusals],
        started_at=started_at,
        elapsed_s=elapsed_s,
        gpu_seconds=row.gpu_seconds,
        charged_microcredits=row.charged_microcredits,
        unposted_microcredits=accrued.unposted_microcredits,
        microcredits_per_hour=accrued.microcredits_per_hour,
        output_bytes=row.output_bytes,
    )


def _status_label(row: tables.Job, spec: JobSubmission, refusals: list[dict[str, Any]]) -> str:
    """The status in the words of its code, with what the job waits for, and in which retry."""
    waits = row.status == JobStatus.WAITING_FOR_RESOURCES
    refused = {refusal["code"] for refusal in refusals}
    words = row.status.replace("_", " ")
    retry = f"retry {row.retries} of {spec.safety.max_retries}" if row.retries else ""
    if row.retry_at is not None:
        return f"pausing before {retry}"
    if row.status in (*ENDED, *GONE, JobStatus.STOPPED):
        return words
    missing = waits and refused & GPUS_MISSING and resources_of(spec).gpu_count
    more = ", ".join(filter(None, ("GPUs" if missing else "", retry)))
    return f"{words}: {more}" if more else words


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A job's document, checked against every rule but those of the resources that it names."""

    document: Any
    reading: Reading
    known_gpu_types: list[str]


def read_document(document: Any) -> ReadDocument:
    """Check a job's document; no transaction is open meanwhile, because that takes a while."""
    with database().read() as session:
        known = known_gpu_types(session)
    return ReadDocument(document, read_submission(document, known), known)


def submit_job(context: ChangeContext, asked: ReadDocument) -> schemas.Job:
    """Create a job from a document that breaks no rule.

    Raises: Problem `invalid-request`, with every mistake in the document;
    `insufficient-credits`, when the job costs and the payer's balance is not positive;
    `storage-exhausted`, when the account has no room for what the job stores;
    `limit-reached`, when the account has as many open jobs as it may have.
    """
    submission, project = accepted(context, asked)
    if submission.array is not None:
        raise invalid(field_error("array", "is for POST /v1/jobs/arrays", len(submission.array)))
    row = _create(context, project, submission)
    return job_response(context.session, context.caller, row)


def submit_array(context: ChangeContext, asked: ReadDocument) -> schemas.JobArray:
    """Create all jobs of an array, or none, from a document that breaks no rule.

    Raises: Problem, as `submit_job`; `invalid-request`, when the document is no array.
    """
    submission, project = accepted(context, asked)
    if submission.array is None:
        raise invalid(field_error("array", "is needed here; POST /v1/jobs takes one job", None))
    rows = [_create(context, project, each) for each in jobs_of_array(submission)]
    context.resource_id = project.id
    return schemas.JobArray(
        name=submission.name,
        project_id=project.id,
        jobs=[schemas.JobOfArray(id=row.id, name=row.name) for row in rows],
    )


def _create(
    context: ChangeContext, project: tables.Project, submission: JobSubmission
) -> tables.Job:
    """Create the row of one job, which starts its workflow."""
    row = tables.Job(
        id=new_id("job"),
        account_id=project.account_id,
        name=submission.name,
        project_id=project.id,
        creator_user_id=context.caller.user_id,
        creator_account_id=context.caller.account_id,
        type=submission.type.value,
        priority=submission.priority,
        spec=stored_spec(submission),
        workers=[],
        demand_key=demand_key(submission, project.account_id),
        waiting_since=context.now,
        placement_refusals=[],
        rates=None,
        created_at=context.now,
        updated_at=context.now,
    )
    row.sealed_variables = sealed_variables(row.id, submission)
    context.concerned_account_id = row.account_id
    context.create(row)
    return row


def accepted(context: ChangeContext, asked: ReadDocument) -> tuple[JobSubmission, tables.Project]:
    """The submission, its secrets as whole references, and its project, once nothing refuses it.

    Raises: Problem, as `submit_job`.
    """
    submission = _submission(context, asked)
    project = _project(context, submission.project_id)
    resources = resources_of(submission, asked.known_gpu_types)
    _check_balance(context.session, project.account_id, resources)
    count = 1 if submission.array is None else len(submission.array)
    check_limit(context, tables.Job, project.account_id, count)
    _check_room(context.session, project.account_id)
    return _with_references(submission, project.id), project


def _with_references(submission: JobSubmission, project_id: str) -> JobSubmission:
    given = submission.environment.secrets
    whole = {name: secret_reference(project_id, text) for name, text in given.items()}
    environment = submission.environment.model_copy(update={"secrets": whole})
    return submission.model_copy(update={"environment": environment})


@dataclass(frozen=True, slots=True)
class Resubmission:
    """A job that was submitted before: its document, and its number in an array as variables."""

    document: dict[str, Any]
    numbers: dict[str, str]


def document_again(caller: Caller, job_id: str) -> Resubmission:
    """What was submitted of a job, with the values of its variables.

    Raises: Problem `not-found`, `forbidden`, when the caller may not change the job.
    """
    with database().read() as session:
        row = visible_job(session, caller, job_id, "all")
        variables = open_variables(row.id, row.sealed_variables)
    numbers = {name: variables.pop(name) for name in (INDEX, SIZE) if name in variables}
    environment = row.spec["environment"] | {"variables": variables}
    document = row.spec | {"project_id": row.project_id, "environment": environment}
    return Resubmission(document, numbers)


def resubmit_job(
    context: ChangeContext, asked: ReadDocument, numbers: dict[str, str]
) -> schemas.Job:
    """Create a job as `submit_job`; numbers: variables that an array gave to the earlier one."""
    submission, project = accepted(context, asked)
    row = _create(context, project, with_variables(submission, numbers))
    return job_response(context.session, context.caller, row)


def _submission(context: ChangeContext, asked: ReadDocument) -> JobSubmission:
    """The submission of a document; the problem for a wrong document names every mistake."""
    found = asked.reading.mistakes
    mistakes = [field_error(mistake.field, mistake.rule, mistake.value) for mistake in found]
    wrong = mistakes + wrong_references(context, asked.document)
    if asked.reading.submission is None or wrong:
        raise invalid(*wrong)
    return asked.reading.submission


def known_gpu_types(session: Session) -> list[str]:
    """The GPU types that nodes of the platform have."""
    rows = session.exec(
        select(tables.Node.gpu_type)
        .where(tables.Node.status != NodeStatus.ARCHIVED, col(tables.Node.gpu_type).is_not(None))
        .distinct()
    )
    return [name for name in rows if name]


def _project(context: ChangeContext, project_id: str | None) -> tables.Project:
    if project_id is not None:
        return project_for(context.session, context.caller, project_id)
    return project_for(context.session, context.caller, personal_project(context))


def _check_room(session: Session, account_id: str) -> None:
    """Refuse a job if the account has no room for the log and the output that it stores."""
    refusal = refusal_of_job(session, account_id)
    if refusal is not None:
        raise Problem("storage-exhausted", refusal)


def _check_balance(session: Session, account_id: str, resources: Resources) -> None:
    """Refuse a job that costs if the payer's balance is not positive."""
    if not resources.gpu_count and not settings().cpu_core_hour_microcredits:
        return
    account = session.get(tables.Account, account_id)
    balance = payers.balance_microcredits(session, account) if account else 0
    if balance <= 0:
        payer = payers.payer_of(account) if account else account_id
        raise Problem(
            "insufficient-credits",
            f"account {payer}: has {balance / MICROCREDITS:g} credits; must have more than 0 to "
            "start a job that costs",
        )


def statuses(asked: Sequence[str]) -> list[str]:
    """The statuses by their codes; they may be asked for in words, as people see them.

    Raises: Problem `invalid-request`, for a status that no job has, with the nearest one.
    """
    codes = [status.replace(" ", "_") for status in asked]
    for status, code in zip(asked, codes, strict=True):
        if code not in set(JobStatus):
            near = get_close_matches(code, list(JobStatus), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            rule = f"is one of {', '.join(JobStatus)}{hint}"
            raise invalid(field_error("status", rule, status))
    return codes


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

    Raises: Problem `conflict`, when the job neither is stopped nor pauses.
    """
    row = _changed_job(context, job_id)
    if row.status != JobStatus.STOPPED and row.retry_at is None:
        raise wrong_state("job", row, "stopped to start again")
    known = known_gpu_types(context.session)
    submission = submission_of(row.spec)
    _check_balance(context.session, row.account_id, resources_of(submission, known))
    context.tell(row.id, "start_again")
    return job_response(context.session, context.caller, row)


def remove_job(context: ChangeContext, job_id: str) -> schemas.Job:
    """Remove a job that has ended; a second call changes nothing.

    Raises: Problem `conflict`, when the job has not ended.
    """
    row = _changed_job(context, job_id)
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


def _must_be_open(row: tables.Job, deed: str) -> None:
    if row.status in (*ENDED, *GONE):
        raise Problem("conflict", f"job {row.name}: is {row.status}; cannot be {deed}")


def _end(context: ChangeContext) -> EndRequest:
    return EndRequest(reason=f"asked for by {context.caller.user_id}")


def placement_response(session: Session, row: tables.Job) -> schemas.JobPlacement:
    """The allocations of a job's attempts, and the refusals while the job waits."""
    refusals = refusals_of_jobs(session, [row])[row.id]
    allocations = session.exec(
        select(tables.Allocation, tables.Node)
        .join(tables.Node, col(tables.Node.id) == col(tables.Allocation.node_id))
        .where(tables.Allocation.job_id == row.id)
        .order_by(col(tables.Allocation.attempt), col(tables.Allocation.worker))
    )
    return schemas.JobPlacement(
        job_id=row.id,
        status=row.status,
        attempt=row.attempt,
        assignments=[
            schemas.JobAssignment(
                worker=allocation.worker,
                attempt=allocation.attempt,
                node_id=node.id,
                node_name=node.name,
                region_id=node.region_id,
                gpu_indices=allocation.gpu_indices,
                cpu_count=allocation.cpu_count,
                memory_bytes=allocation.memory_bytes,
                state=allocation.state,
                reserved_at=allocation.created_at,
                released_at=allocation.released_at,
            )
            for allocation, node in allocations
        ],
        refusals=[schemas.PlacementRefusal(**found) for found in refusals],
    )


def jobs_of(session: Session, caller: Caller) -> SelectOfScalar[tables.Job]:
    """The query for all jobs that a caller may list."""
    return select(tables.Job).where(visible_jobs(session, caller))
