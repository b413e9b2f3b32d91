"""What a job waits for before it asks for resources: artifacts that are being transferred."""

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.uses import data_bytes_of_job
from activities.db.session import database
from activities.db.tables import ArtifactRow, ArtifactUse, Job, table_of_artifact
from activities.jobs.submissions import submission_of
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import noun_of
from workflows.effects.job_data import FindJobData, JobDataFound
from workflows.rules.jobs.resources import demand_key

_ON_THEIR_WAY = (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING)
SHOWN = 5
"""How many artifacts the answer names."""


@activity.defn
def find_job_data(command: FindJobData) -> JobDataFound:
    """What of a job's artifacts is missing; once nothing is, its row says how much disk they take.

    Raises: NotFound, when there is no such job.
    """
    with database().write() as session:
        job = session.get(Job, command.job_id)
        if job is None:
            raise ApplicationError(f"{command.job_id}: there is no such job", type=NOT_FOUND)
        rows = _artifacts(session, job.id)
        gone = [row for row in rows if row.status not in (*_ON_THEIR_WAY, ArtifactStatus.READY)]
        waits_for = [row for row in rows if row.status in _ON_THEIR_WAY]
        if not gone and not waits_for:
            job.data_bytes = data_bytes_of_job(session, job.id)
            job.demand_key = demand_key(submission_of(job.spec), job.account_id, job.data_bytes)
            session.add(job)
        return JobDataFound(
            waits_for="; ".join(map(_waits, waits_for[:SHOWN])),
            failure="; ".join(map(_why, gone[:SHOWN])),
            sequence=job.sequence,
        )


def _artifacts(session: Session, job_id: str) -> list[ArtifactRow]:
    """The artifacts that a job uses, in the order of their ids."""
    used = select(ArtifactUse.artifact_id).where(ArtifactUse.job_id == job_id).distinct()
    ids = session.exec(used).all()
    found: list[ArtifactRow] = []
    for table in {table_of_artifact(each) for each in ids}:
        found += session.exec(select(table).where(col(table.id).in_(ids)))
    return sorted(found, key=lambda row: row.id)


def _waits(row: ArtifactRow) -> str:
    why = "" if row.status_reason is None else f": {row.status_reason}"
    return f"waits until {noun_of(row.id).name} {row.name} is transferred from {_from(row)}{why}"


def _why(row: ArtifactRow) -> str:
    noun = noun_of(row.id).name
    return f"{noun} {row.name} ({row.id}) is {row.status}: {row.status_reason or 'no reason'}"


def _from(row: ArtifactRow) -> str:
    return str(row.source.get("type", "its source"))
