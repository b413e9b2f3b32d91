"""New jobs: the rows of a job, and the outbox row that starts its workflow."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from activities.db.tables import ArtifactUse, Job, JobDatastore, JobLabel, JobReservation
from activities.jobs.submissions import stored_spec
from activities.outbox.requests import create
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs.artifacts import artifacts_of
from workflows.rules.jobs.data_places import input_artifact
from workflows.rules.jobs.datastores import datastores_of
from workflows.rules.jobs.resources import demand_key


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is to be created, of which nothing is refused.

    account_id: of the project's owner. sealed_variables: the values of its variables, sealed for
    its id. data_bytes: as `data_bytes_of` counts them. federated_id: the federated job whose job
    it is; None: it is its project's own.
    """

    id: str
    project_id: str
    account_id: str
    creator_user_id: str
    creator_account_id: str
    submission: JobSubmission
    sealed_variables: bytes | None
    data_bytes: int
    federated_id: str | None = None


def add_job(session: Session, job: NewJob, at: datetime) -> tuple[Job, str]:
    """Add the rows of a job; return its row, and the id of the outbox row that starts it."""
    submission = job.submission
    row = Job(
        id=job.id,
        account_id=job.account_id,
        name=submission.name,
        project_id=job.project_id,
        creator_user_id=job.creator_user_id,
        creator_account_id=job.creator_account_id,
        federated_id=job.federated_id,
        type=submission.type.value,
        priority=submission.priority,
        spec=stored_spec(submission),
        sealed_variables=job.sealed_variables,
        workers=[],
        demand_key=demand_key(
            submission,
            job.account_id,
            job.data_bytes,
            job.creator_account_id if job.federated_id is not None else None,
        ),
        data_bytes=job.data_bytes,
        waiting_since=at,
        placement_refusals=[],
        rates=None,
        created_at=at,
        updated_at=at,
    )
    request_id = create(session, row)
    for key, value in submission.labels.items():
        session.add(JobLabel(job_id=row.id, key=key, value=value, account_id=row.account_id))
    for role, artifact_id in (*artifacts_of(submission), *input_artifact(submission)):
        use = ArtifactUse(job_id=row.id, artifact_id=artifact_id, role=role.value)
        session.add(use)
    for datastore_id in datastores_of(submission):
        session.add(JobDatastore(job_id=row.id, datastore_id=datastore_id))
    if (named := submission.reservation_id) is not None:
        session.add(JobReservation(job_id=row.id, reservation_id=named))
    return row, request_id
