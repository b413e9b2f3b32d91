"""Who uses an artifact: the jobs that have not ended; and how much disk a job needs for them."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, func, select

from activities.db.tables import (
    ARTIFACT_TABLES,
    ArtifactRow,
    ArtifactUse,
    Job,
    table_of_artifact,
)
from activities.outbox.requests import enqueue
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.artifacts import artifacts_of
from workflows.rules.jobs.data_places import input_artifact

DATA_CHANGED = "data_changed"
"""The signal to a job that one of its artifacts is there, or will not be."""
_FILE_BYTES = 4096
"""What a file takes on disk beside its bytes, about, as the agent counts it."""


def jobs_using(session: Session, artifact_id: str) -> list[str]:
    """The ids of the jobs that use an artifact and have not ended, oldest first."""
    return users_of(session, [artifact_id]).get(artifact_id, [])


def users_of(session: Session, artifact_ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the jobs that use each of these artifacts and have not ended, oldest first."""
    ended = [status for status in JobStatus if status.is_final]
    query = (
        select(ArtifactUse.artifact_id, ArtifactUse.job_id)
        .join(Job, col(Job.id) == ArtifactUse.job_id)
        .where(col(ArtifactUse.artifact_id).in_(artifact_ids), col(Job.status).not_in(ended))
        .order_by(col(ArtifactUse.job_id))
        .distinct()
    )
    found: dict[str, list[str]] = defaultdict(list)
    for artifact_id, job_id in session.exec(query):
        found[artifact_id].append(job_id)
    return found


def wake_waiting_jobs(session: Session, artifact_id: str, at: datetime) -> list[str]:
    """Signal the jobs that wait for this artifact that it has changed; the ids of the outbox rows.

    A job that begins just now sees the change itself: its submission has locked the artifact's row.
    """
    waiting = (
        select(Job.id)
        .join(ArtifactUse, col(ArtifactUse.job_id) == Job.id)
        .where(ArtifactUse.artifact_id == artifact_id, Job.status == JobStatus.NEW)
        .order_by(col(Job.id))
        .distinct()
    )
    return [enqueue(session, each, DATA_CHANGED, None, at) for each in session.exec(waiting).all()]


def data_bytes_of(session: Session, submission: JobSubmission) -> int:
    """About how much disk of a node the artifacts that a job names take, each once.

    What is still being transferred counts nothing yet.
    """
    named = (*artifacts_of(submission), *input_artifact(submission))
    return _data_bytes(session, {artifact_id for _, artifact_id in named})


def data_bytes_of_job(session: Session, job_id: str) -> int:
    """The same by the rows of a job that is there, with its input."""
    used = select(ArtifactUse.artifact_id).where(ArtifactUse.job_id == job_id)
    return _data_bytes(session, set(session.exec(used)))


def _data_bytes(session: Session, ids: set[str]) -> int:
    found = 0
    for table in {table_of_artifact(artifact_id) for artifact_id in ids}:
        files = func.coalesce(col(table.file_count), 0)
        size = func.coalesce(col(table.unpacked_bytes), 0) + files * _FILE_BYTES
        query = select(func.coalesce(func.sum(size), 0)).where(col(table.id).in_(ids))
        found += int(session.exec(query).one())
    return found


def copies_of_output(session: Session, job: Job) -> list[ArtifactRow]:
    """The artifacts that are made of a job's output, which are not complete yet."""
    found: list[ArtifactRow] = []
    for table in ARTIFACT_TABLES.values():
        # Of the project, whose owner is the account of its jobs and artifacts.
        under_way = select(table).where(
            table.account_id == job.account_id,
            col(table.status).in_((ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING)),
        )
        found += (row for row in session.exec(under_way) if row.source.get("job_id") == job.id)
    return found
