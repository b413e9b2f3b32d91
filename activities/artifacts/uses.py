"""Who uses an artifact: the jobs that have not ended."""

from collections import defaultdict
from collections.abc import Sequence

from sqlmodel import Session, col, select

from activities.db.tables import ArtifactUse, Job
from workflows.contracts.statuses import JobStatus


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
