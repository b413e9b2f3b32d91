"""What a job waits for before it asks for resources: artifacts that are being transferred."""

from collections.abc import Callable, Sequence

from sqlalchemy import update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.uses import data_bytes_of_job
from activities.db.session import database
from activities.db.tables import ArtifactRow, ArtifactUse, Dataset, Job, table_of_artifact
from activities.jobs.submissions import submission_of
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import noun_of
from workflows.effects.job_data import FindJobData, JobDataFound
from workflows.rules.jobs.resources import demand_key

ON_THEIR_WAY = (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING, ArtifactStatus.REMOVING)
"""One that is being removed stays, if the job came to use it before; else it will be archived."""
SHOWN = 5
"""How many artifacts the answer names."""


@activity.defn
def find_job_data(command: FindJobData) -> JobDataFound:
    """What of a job's artifacts is missing; once nothing is, its row says how much disk they take.

    An artifact that changes after this was read signals the job (`wake_waiting_jobs`).
    Raises: NotFound, when there is no such job.
    """
    with database().read() as session:
        job = session.get(Job, command.job_id)
        if job is None:
            raise ApplicationError(f"{command.job_id}: there is no such job", type=NOT_FOUND)
        rows = _artifacts(session, job.id)
        gone = [row for row in rows if row.status not in (*ON_THEIR_WAY, ArtifactStatus.READY)]
        waits_for = [row for row in rows if row.status in ON_THEIR_WAY]
        data_bytes = data_bytes_of_job(session, job.id)
    if not gone and not waits_for:
        _note_size(job, data_bytes)
    return JobDataFound(
        waits_for=_some(waits_for, _waits), failure=_some(gone, _why), sequence=job.sequence
    )


def _note_size(job: Job, data_bytes: int) -> None:
    """Correct what placement goes by, in case that not all sizes were known at the submission."""
    key = demand_key(
        submission_of(job.spec),
        job.account_id,
        data_bytes,
        job.creator_account_id if job.federated_id is not None else None,
    )
    if (job.data_bytes, job.demand_key) == (data_bytes, key):
        return
    corrected = update(Job).where(col(Job.id) == job.id)
    with database().write() as session:
        session.execute(corrected.values(data_bytes=data_bytes, demand_key=key))


def _artifacts(session: Session, job_id: str) -> list[ArtifactRow]:
    """The artifacts that a job uses, in the order of their ids."""
    used = select(ArtifactUse.artifact_id).where(ArtifactUse.job_id == job_id).distinct()
    ids = session.exec(used).all()
    found: list[ArtifactRow] = []
    for table in {table_of_artifact(each) for each in ids}:
        found += session.exec(select(table).where(col(table.id).in_(ids)))
    return sorted(found, key=lambda row: row.id)


def _some(rows: Sequence[ArtifactRow], say: Callable[[ArtifactRow], str]) -> str:
    """What is to be said of the first of these, and how many more there are."""
    more = len(rows) - SHOWN
    words = [say(row) for row in rows[:SHOWN]]
    return "; ".join([*words, *([f"and {more} more"] if more > 0 else ())])


def _waits(row: ArtifactRow) -> str:
    if row.status == ArtifactStatus.REMOVING:
        return f"waits until it is known whether {_named(row)} is removed"
    source = row.source.get("type", "its source")
    why = "" if row.status_reason is None else f": {row.status_reason}"
    return f"waits until {_named(row)} is transferred from {source}{why}"


def _why(row: ArtifactRow) -> str:
    return f"{_named(row)} ({row.id}) is {row.status}: {row.status_reason or 'no reason'}"


def _named(row: ArtifactRow) -> str:
    """The artifact for a person; an input that was made for the job has no name of theirs."""
    is_made = isinstance(row, Dataset) and row.made_for_job_id is not None
    return "its input" if is_made else f"{noun_of(row.id).name} {row.name}"
