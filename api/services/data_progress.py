"""Data on their way: the jobs whose data may be, and what their transfers say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from activities.db import tables
from api.authorization import Caller
from api.schemas import data_progress as schemas
from api.services.ownership import has_known_output, visible_jobs
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.jobs import DataProgress
from workflows.contracts.statuses import JobStatus

MOST_JOBS = 100
_ON_THEIR_WAY = (JobStatus.WAITING_FOR_DATA, JobStatus.UPLOADING)


@dataclass(frozen=True)
class Transferring:
    """The jobs whose data or output are on their way, and the names of their nodes by their ids."""

    job_ids: list[str]
    node_names: dict[str, str]
    awaited: list[schemas.WorkerDataProgress]
    """Of jobs that wait for artifacts, how much of each is stored."""


def what_is_transferred(
    session: Session, caller: Caller, job_ids: Sequence[str] | None
) -> Transferring:
    """The newest of the caller's jobs that transfer something.

    job_ids: only of these; None: of all.
    """
    query = select(tables.Job).where(
        visible_jobs(session, caller),
        has_known_output(caller),
        col(tables.Job.status).in_(_ON_THEIR_WAY),
    )
    if job_ids is not None:
        query = query.where(col(tables.Job.id).in_(job_ids))
    rows = session.exec(query.order_by(col(tables.Job.id).desc()).limit(MOST_JOBS)).all()
    assignments = [worker.get("assignment") or {} for row in rows for worker in row.workers]
    node_ids = {one["node"]["node_id"] for one in assignments if one.get("node")}
    named = select(tables.Node.id, tables.Node.name).where(col(tables.Node.id).in_(node_ids))
    awaited = list(_awaited(session, caller, job_ids))
    return Transferring([row.id for row in rows], dict(session.exec(named).all()), awaited)


def _awaited(
    session: Session, caller: Caller, job_ids: Sequence[str] | None
) -> Iterator[schemas.WorkerDataProgress]:
    """What the newest of the caller's jobs wait for, by the rows of the artifacts."""
    uses = (
        select(tables.ArtifactUse.job_id, tables.ArtifactUse.artifact_id)
        .join(tables.Job, col(tables.Job.id) == tables.ArtifactUse.job_id)
        .where(visible_jobs(session, caller), tables.Job.status == JobStatus.NEW)
    )
    if job_ids is not None:
        uses = uses.where(col(tables.Job.id).in_(job_ids))
    newest = uses.order_by(col(tables.Job.id).desc()).distinct().limit(MOST_JOBS)
    found = session.exec(newest).all()
    rows: dict[str, tables.ArtifactRow] = {}
    for table in {tables.table_of_artifact(each) for _, each in found}:
        ids = [each for _, each in found]
        under_way = select(table).where(
            col(table.id).in_(ids), table.status == ArtifactStatus.TRANSFERRING
        )
        rows |= {row.id: row for row in session.exec(under_way)}
    for job_id, artifact_id in found:
        if (row := rows.get(artifact_id)) is not None:
            yield _of_artifact(job_id, row)


def _of_artifact(job_id: str, row: tables.ArtifactRow) -> schemas.WorkerDataProgress:
    """How far the transfer of an artifact is; its row does not say how fast it goes."""
    return schemas.WorkerDataProgress(
        job_id=job_id,
        artifact_id=row.id,
        worker=None,
        node_id=None,
        node_name=None,
        is_output=False,
        bytes_transferred=row.bytes_transferred,
        total_bytes=row.total_bytes,
        bytes_per_s=None,
        left_s=None,
        at=row.updated_at,
    )


def progress_response(
    found: Transferring, said: Mapping[str, Sequence[DataProgress]]
) -> schemas.DataProgressList:
    of_nodes = [
        schemas.WorkerDataProgress(
            job_id=job_id,
            artifact_id=None,
            node_name=found.node_names.get(each.node_id),
            left_s=each.left_s,
            **each.model_dump(exclude={"attempt"}),
        )
        for job_id in found.job_ids
        for each in said.get(job_id, ())
    ]
    return schemas.DataProgressList(items=[*of_nodes, *found.awaited])
