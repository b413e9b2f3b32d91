"""Who uses an artifact: the jobs that have not ended; and how much disk a job needs for them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, case, sql, true
from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import Select

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
from workflows.rules.counts import counted
from workflows.rules.jobs.artifacts import artifacts_of
from workflows.rules.jobs.data_places import input_artifact

DATA_CHANGED = "data_changed"
"""The signal to a job that one of its artifacts is there, or will not be."""
_FILE_BYTES = 4096
"""What a file takes on disk beside its bytes, about, as the agent counts it."""


@dataclass(frozen=True)
class Users:
    """The jobs that use an artifact and have not ended."""

    job_ids: tuple[str, ...] = ()
    """Some of those whose ids may be shown, oldest first."""
    count: int = 0
    """Of all of them."""

    def __str__(self) -> str:
        others = self.count - len(self.job_ids)
        if not self.job_ids:
            return counted(others, "job")
        return ", ".join(self.job_ids) + (f" and {others} more" if others else "")


def jobs_using(session: Session, artifact_id: str) -> list[str]:
    """The ids of the jobs that use an artifact and have not ended, oldest first."""
    query = _uses([artifact_id], true()).order_by(col(ArtifactUse.job_id))
    return [job_id for _, job_id, _ in session.exec(query)]


def users_of(
    session: Session, artifact_ids: Collection[str], most: int, may_show: ColumnElement[bool]
) -> dict[str, Users]:
    """The users of each of these artifacts that has any.

    most: how many ids are returned of each; may_show: the condition of a job whose id may be.
    """
    uses = _uses(artifact_ids, may_show).subquery()
    order = (uses.c.is_shown.desc(), uses.c.job_id)
    place = func.row_number().over(partition_by=uses.c.artifact_id, order_by=order)
    count = func.count().over(partition_by=uses.c.artifact_id)
    ranked = sql.select(uses, place.label("place"), count.label("all")).subquery()
    found: dict[str, Users] = {}
    query = sql.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.place)
    for row in session.execute(query):
        before = found.get(row.artifact_id, Users()).job_ids
        found[row.artifact_id] = Users((*before, row.job_id) if row.is_shown else before, row.all)
    return found


def _uses(artifact_ids: Collection[str], may_show: ColumnElement[bool]) -> Select[str, str, int]:
    """The ids of artifact and job of each use, once, and 1 where the job's id may be shown."""
    ended = [status for status in JobStatus if status.is_final]
    shown = case((may_show, 1), else_=0).label("is_shown")
    return (
        select(ArtifactUse.artifact_id, ArtifactUse.job_id, shown)
        .join(Job, col(Job.id) == ArtifactUse.job_id)
        .where(col(ArtifactUse.artifact_id).in_(artifact_ids), col(Job.status).not_in(ended))
        .distinct()
    )


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
