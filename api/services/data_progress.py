"""Data on their way: the jobs whose data may be, and what their transfers say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from activities.db import tables
from api.authorization import Caller
from api.schemas import data_progress as schemas
from api.services.ownership import visible_jobs
from workflows.contracts.jobs import DataProgress
from workflows.contracts.statuses import JobStatus

MOST_JOBS = 100
_ON_THEIR_WAY = (JobStatus.WAITING_FOR_DATA, JobStatus.UPLOADING)


@dataclass(frozen=True)
class Transferring:
    """The jobs whose data or output are on their way, and the names of their nodes by their ids."""

    job_ids: list[str]
    node_names: dict[str, str]


def what_is_transferred(
    session: Session, caller: Caller, job_ids: Sequence[str] | None
) -> Transferring:
    """The newest of the caller's jobs that transfer something.

    job_ids: only of these; None: of all.
    """
    query = select(tables.Job).where(
        visible_jobs(session, caller), col(tables.Job.status).in_(_ON_THEIR_WAY)
    )
    if job_ids is not None:
        query = query.where(col(tables.Job.id).in_(job_ids))
    rows = session.exec(query.order_by(col(tables.Job.id).desc()).limit(MOST_JOBS)).all()
    assignments = [worker.get("assignment") or {} for row in rows for worker in row.workers]
    node_ids = {one["node"]["node_id"] for one in assignments if one.get("node")}
    named = select(tables.Node.id, tables.Node.name).where(col(tables.Node.id).in_(node_ids))
    return Transferring([row.id for row in rows], dict(session.exec(named).all()))


def progress_response(
    found: Transferring, said: Mapping[str, Sequence[DataProgress]]
) -> schemas.DataProgressList:
    return schemas.DataProgressList(
        items=[
            schemas.WorkerDataProgress(
                job_id=job_id,
                node_name=found.node_names.get(each.node_id),
                left_s=each.left_s,
                **each.model_dump(exclude={"attempt"}),
            )
            for job_id in found.job_ids
            for each in said.get(job_id, ())
        ]
    )
