"""Submissions of jobs: documents checked, and the rows that start the workflows of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from activities.accounts.stored_bytes import refusal_of_job
from activities.artifacts.uses import data_bytes_of
from activities.billing import payers
from activities.billing.balances import left_microcredits
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import database
from activities.jobs.creation import NewJob, add_job
from activities.jobs.submissions import open_variables, sealed_variables
from activities.settings import settings
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import jobs as schemas
from api.services.account_limits import check_limit
from api.services.job_datastores import pinned, region_warnings
from api.services.job_inputs import check_input, create_input
from api.services.job_providers import with_provider_ids
from api.services.job_references import personal_project, wrong_references
from api.services.job_responses import job_response
from api.services.ownership import (
    hold_project,
    project_for,
    project_for_federated,
    visible_job,
)
from api.services.third_party_keys import with_image_key
from workflows.contracts.billing import MICROCREDITS
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.lifecycles import FEDERATED
from workflows.contracts.placement import Resources
from workflows.contracts.statuses import NodeStatus
from workflows.rules.jobs.arrays import INDEX, SIZE, jobs_of_array, with_variables
from workflows.rules.jobs.formats import secret_reference
from workflows.rules.jobs.resources import resources_of
from workflows.rules.jobs.submission import Reading, read_submission

_OF_OWNER = {
    "insufficient-credits": "has no credits for it",
    "limit-reached": "has as many open jobs as it may have",
    "storage-exhausted": "has no room for what it stores",
}
"""What another account's member reads of the owner's balance and limits, by code: no figures."""


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
    (row,) = _create_all(context, project, [submission])
    resources = resources_of(submission, asked.known_gpu_types)
    warnings = region_warnings(context.session, submission, resources)
    found = job_response(context.session, context.caller, row)
    return found.model_copy(update={"warnings": warnings})


def submit_array(context: ChangeContext, asked: ReadDocument) -> schemas.JobArray:
    """Create all jobs of an array, or none, from a document that breaks no rule.

    Raises: Problem, as `submit_job`; `invalid-request`, when the document is no array.
    """
    submission, project = accepted(context, asked)
    if submission.array is None:
        raise invalid(field_error("array", "is needed here; POST /v1/jobs takes one job", None))
    rows = _create_all(context, project, jobs_of_array(submission))
    context.resource_id = project.id
    resources = resources_of(submission, asked.known_gpu_types)
    return schemas.JobArray(
        warnings=region_warnings(context.session, submission, resources),
        name=submission.name,
        project_id=project.id,
        jobs=[schemas.JobOfArray(id=row.id, name=row.name) for row in rows],
    )


def _create_all(
    context: ChangeContext, project: tables.Project, submissions: Sequence[JobSubmission]
) -> list[tables.Job]:
    """Create the jobs of one submission, all of which name the same data."""
    hold_project(context.session, project)
    data_bytes = data_bytes_of(context.session, submissions[0])
    rows = [_create(context, project, each, data_bytes) for each in submissions]
    create_input(context, project, submissions[0], rows)
    return rows


def _create(
    context: ChangeContext, project: tables.Project, submission: JobSubmission, data_bytes: int
) -> tables.Job:
    """Create the row of one job, which starts its workflow; data_bytes: as `data_bytes_of`."""
    job_id = new_id("job")
    job = NewJob(
        id=job_id,
        project_id=project.id,
        account_id=project.account_id,
        creator_user_id=context.caller.user_id,
        creator_account_id=context.caller.account_id,
        submission=submission,
        sealed_variables=sealed_variables(job_id, submission),
        data_bytes=data_bytes,
    )
    row, request_id = add_job(context.session, job, context.now)
    context.concerned_account_id = row.account_id
    context.requests.append(request_id)
    return row


def accepted(context: ChangeContext, asked: ReadDocument) -> tuple[JobSubmission, tables.Project]:
    """The submission, its secrets as whole references, and its project, once nothing refuses it.

    Raises: Problem, as `submit_job`.
    """
    submission = _submission(context, asked)
    project = _project(context, submission.project_id)
    return _accepted_in(context, asked, submission, project), project


def accepted_federated(
    context: ChangeContext, asked: ReadDocument
) -> tuple[JobSubmission, tables.Project]:
    """As `accepted`, of the job of a federated job, which needs a permission of its own.

    Raises: Problem, as `submit_job`.
    """
    read = asked.reading.submission
    named = read.project_id if read is not None and not asked.reading.mistakes else None
    if named is not None:  # The permission is asked first: without it no id is found.
        project_for_federated(context.session, context.caller, named)
    submission = _submission(context, asked, FEDERATED.name)
    project = project_for_federated(context.session, context.caller, submission.project_id or "")
    try:
        return _accepted_in(context, asked, submission, project), project
    except Problem as problem:
        words = _OF_OWNER.get(problem.code)
        if words is None or project.account_id == context.caller.account_id:
            raise
        said = f"project {project.id}: asked to create a federated job; its owner {words}"
        raise Problem(problem.code, said) from None


def _accepted_in(
    context: ChangeContext,
    asked: ReadDocument,
    submission: JobSubmission,
    project: tables.Project,
) -> JobSubmission:
    """The submission as it is stored, once its project and its owner do not refuse it."""
    resources = resources_of(submission, asked.known_gpu_types)
    check_balance(context.session, project.account_id, resources)
    count = 1 if submission.array is None else len(submission.array)
    check_limit(context, tables.Job, project.account_id, count)
    check_room(context.session, project.account_id)
    check_input(context, submission, project)
    named = with_provider_ids(context.session, submission, project.account_id)
    whole = with_image_key(context, _with_references(named, project.id), project)
    return pinned(context.session, whole)


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
    (row,) = _create_all(context, project, [with_variables(submission, numbers)])
    return job_response(context.session, context.caller, row)


def _submission(context: ChangeContext, asked: ReadDocument, noun: str = "job") -> JobSubmission:
    """The submission of a document; the problem for a wrong document names every mistake."""
    found = asked.reading.mistakes
    mistakes = [field_error(mistake.field, mistake.rule, mistake.value) for mistake in found]
    wrong = mistakes + wrong_references(context, asked.document, noun, asked.known_gpu_types)
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


def check_room(session: Session, account_id: str) -> None:
    """Refuse a job if the account has no room for the log and the output that it stores.

    Raises: Problem `storage-exhausted`.
    """
    refusal = refusal_of_job(session, account_id)
    if refusal is not None:
        raise Problem("storage-exhausted", refusal)


def check_balance(session: Session, account_id: str, resources: Resources) -> None:
    """Refuse a job that costs if the payer's balance is not positive.

    Raises: Problem `insufficient-credits`.
    """
    if not resources.gpu_count and not settings().cpu_core_hour_microcredits:
        return
    must_have_credits(session, account_id, "start a job that costs")


def must_have_credits(session: Session, account_id: str, deed: str) -> None:
    """Refuse what costs if nothing is left of the payer's balance.

    deed: what the account asks for, for the refusal. Raises: Problem `insufficient-credits`.
    """
    account = session.get(tables.Account, account_id)
    left = left_microcredits(session, account) if account else 0
    if left <= 0:
        payer = payers.payer_of(account) if account else account_id
        raise Problem(
            "insufficient-credits",
            f"account {payer}: has {left / MICROCREDITS:g} credits left after device fees that are"
            f" not charged yet; must have more than 0 to {deed}",
        )
