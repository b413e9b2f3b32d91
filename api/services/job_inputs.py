"""Inputs of jobs that are transferred for them: who may have that done, and the dataset made."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from activities.accounts.stored_bytes import refusal_of_artifact
from activities.db import tables
from activities.db.ids import new_id
from api.changes import ChangeContext
from api.problems import Problem, field_error
from api.schemas.base import FieldError
from api.services.account_limits import check_limit
from api.services.lifecycles import GONE
from api.services.projects import refusal_of_secret
from api.services.third_party_keys import refusal_of_use, with_source_key
from workflows.contracts.artifacts import (
    ArtifactRole,
    GitSource,
    HuggingFaceSource,
    JobSource,
    KeyedSource,
    ObjectStoreSource,
    Source,
)
from workflows.contracts.job_submission import InputSource, JobSubmission
from workflows.contracts.lifecycles import DATASET
from workflows.contracts.statuses import JobStatus
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.data_places import source_of, source_of_input

FIELD = "data.input"


def wrong_input(
    context: ChangeContext, document: Any, project: tables.Project | None
) -> list[FieldError]:
    """The field errors for what the input of a job's document names and the job cannot have.

    project: of the job, in which the caller may create jobs. What breaks a rule of its shape has
    its field error elsewhere.
    """
    data = document.get("data")
    given = data.get("input") if isinstance(data, dict) else None
    if project is None or not isinstance(given, dict):
        return []
    try:
        source = source_of_input(InputSource.model_validate(given))
    except ValidationError:
        return []
    found = [_wrong_job(context, project, source), _wrong_secret(context, project, source)]
    return [each for each in (*found, _wrong_key(context, project, source)) if each is not None]


def _wrong_job(
    context: ChangeContext, project: tables.Project, source: Source | None
) -> FieldError | None:
    if not isinstance(source, JobSource):
        return None
    job, field = context.session.get(tables.Job, source.job_id), f"{FIELD}.job_id"
    if job is None or job.project_id != project.id:
        rule = f"is a job of the job's project {project.id}: not found"
        return field_error(field, rule, source.job_id)
    if job.status in GONE:
        rule = f"is a job with an output: this one is {job.status}, and its output with it"
        return field_error(field, rule, job.id)
    if not JobStatus(job.status).is_final:
        rule = f"is a job that has ended, with its whole output: job {job.name} is {job.status}"
        return field_error(field, rule, job.id)
    return None


def _wrong_secret(
    context: ChangeContext, project: tables.Project, source: Source | None
) -> FieldError | None:
    if not isinstance(source, ObjectStoreSource | HuggingFaceSource) or source.secret is None:
        return None
    return refusal_of_secret(context, project, f"{FIELD}.secret", source.secret)


def _wrong_key(
    context: ChangeContext, project: tables.Project, source: Source | None
) -> FieldError | None:
    if not isinstance(source, KeyedSource):
        return None
    field, secret = f"{FIELD}.with_key", getattr(source, "secret", None)
    if secret is not None and source.with_key:
        return field_error(field, f"is not beside {FIELD}.secret", True)
    over_ssh = isinstance(source, GitSource) and source.url.startswith("ssh://")
    if over_ssh or source.with_key:
        return refusal_of_use(context, project, field, KeyType(source.type))
    return None


def check_input(context: ChangeContext, submission: JobSubmission, project: tables.Project) -> None:
    """Check that the account has room for a dataset more, if the input of a job is to be one.

    Raises: Problem `limit-reached`, `storage-exhausted`.
    """
    if source_of(submission) is None:
        return
    check_limit(context, tables.Dataset, project.account_id)
    if (refusal := refusal_of_artifact(context.session, project.account_id, 1)) is not None:
        raise Problem("storage-exhausted", refusal)


def create_input(
    context: ChangeContext,
    project: tables.Project,
    submission: JobSubmission,
    jobs: Sequence[tables.Job],
) -> None:
    """Create the dataset that the input of these jobs becomes, if it is transferred for them.

    jobs: of one submission; all of them wait for the one dataset.
    """
    source = source_of(submission)
    if source is None:
        return
    first = jobs[0]
    row = tables.Dataset(
        id=new_id(DATASET.prefix),
        account_id=project.account_id,
        project_id=project.id,
        name=f"input-{first.id}",
        creator_user_id=context.caller.user_id,
        creator_account_id=context.caller.account_id,
        source=with_source_key(context, source, project, FIELD).model_dump(mode="json"),
        made_for_job_id=first.id,
        created_at=context.now,
        updated_at=context.now,
    )
    context.create(row)
    for job in jobs:
        use = tables.ArtifactUse(job_id=job.id, artifact_id=row.id, role=ArtifactRole.INPUT.value)
        context.session.add(use)
