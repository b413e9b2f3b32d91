"""The third-party keys of a job's project that its runs get, and that its image is pulled with."""

from dataclasses import dataclass, field
from typing import Protocol

from sqlmodel import Session
from temporalio.exceptions import ApplicationError

from activities.third_party_keys.of_runs import RunKeys, keys_of_run, registry_login
from activities.third_party_keys.stored import key_rows, open_key
from workflows.contracts.errors import WORK_REFUSED
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.formats import full_image
from workflows.rules.jobs.registries import registry_of


class OfProject(Protocol):
    """What runs with the keys of a project: a job or a device configuration."""

    id: str
    project_id: str


@dataclass(frozen=True)
class JobKeys:
    """What the runs of a job get of keys, and the USER:PASSWORD of its image's registry."""

    of_runs: RunKeys
    registry_login: str | None = field(repr=False)


def keys_of_job(session: Session, job: OfProject, submission: JobSubmission) -> JobKeys:
    """The keys of a job, opened. Raises: WorkRefused, when the project has one of them no longer,
    or the one for the image is of other registries."""
    environment = submission.environment
    asked = {*environment.credentials, *filter(None, (environment.image_credentials,))}
    rows = key_rows(session, job.project_id, [KeyType(each) for each in sorted(asked)])
    if lacking := sorted(asked - set(rows)):
        raise ApplicationError(
            f"{job.id}: asked for the third-party key {lacking[0]} of project {job.project_id}: "
            "it has been removed; set it, then submit the job again",
            type=WORK_REFUSED,
        )
    opened = {kind: open_key(row) for kind, row in rows.items()}
    attached = {KeyType(each): opened[KeyType(each)] for each in environment.credentials}
    return JobKeys(keys_of_run(attached), _login(job, submission, opened))


def _login(
    job: OfProject, submission: JobSubmission, opened: dict[KeyType, dict[str, str]]
) -> str | None:
    environment = submission.environment
    if environment.image is None or environment.image_credentials is None:
        return None
    kind = KeyType(environment.image_credentials)
    registry = registry_of(full_image(environment.image))
    login = registry_login(kind, opened[kind], registry)
    if login is None:
        raise ApplicationError(
            f"{job.id}: environment.image_credentials: the key {kind} of project "
            f"{job.project_id} has no login for {registry}",
            type=WORK_REFUSED,
        )
    return login
