"""Refusals of waiting jobs, stored once for all jobs of a project with equal demands."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import and_, delete, insert, tuple_, update
from sqlmodel import Session, col, select

from activities.db.tables import DemandRefusalsRow, Job
from activities.placement.queue import is_waiting
from workflows.contracts.placement import DemandRefusals, JobRefusals
from workflows.contracts.statuses import JobStatus

DemandOfProject = tuple[str, str]
"""The id of a project and the key of a demand."""
Refusals = dict[DemandOfProject, list[dict[str, Any]]]
"""The refusals of demands as JSON, as they are stored."""
_AT_ONCE = 300


def stored_refusals(session: Session) -> Refusals:
    """The refusals of all demands."""
    rows = session.exec(select(DemandRefusalsRow))
    return {(row.project_id, row.demand_key): row.refusals for row in rows}


def changed_refusals(
    refused: Iterable[DemandRefusals], stored: Refusals, waiting: set[DemandOfProject]
) -> Refusals:
    """The refusals to write; an empty list where nobody waits with the demand any more."""
    now = {
        (each.project_id, each.demand_key): [
            reason.model_dump(mode="json") for reason in each.refusals
        ]
        for each in refused
    }
    changed = {key: why for key, why in now.items() if why != stored.get(key)}
    return changed | {key: [] for key in stored if key not in waiting}


def write_refusals(session: Session, changed: Refusals) -> None:
    """Write the refusals of these demands; only one planning round at a time may do so."""
    keys = list(changed)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        key = tuple_(col(DemandRefusalsRow.project_id), col(DemandRefusalsRow.demand_key))
        session.execute(delete(DemandRefusalsRow).where(key.in_(some)))
        rows = [
            {"project_id": project_id, "demand_key": demand_key, "refusals": why}
            for project_id, demand_key in some
            if (why := changed[project_id, demand_key])
        ]
        if rows:
            session.execute(insert(DemandRefusalsRow), rows)


def write_job_refusals(session: Session, refused: Iterable[JobRefusals]) -> None:
    """Write the refusals of single jobs, which the caller has locked."""
    rows = [
        {
            "id": each.job_id,
            "placement_refusals": [reason.model_dump(mode="json") for reason in each.refusals],
        }
        for each in refused
    ]
    if rows:
        session.execute(update(Job), rows)


def refusals_of_jobs(session: Session, jobs: Sequence[Job]) -> dict[str, list[dict[str, Any]]]:
    """Job id to its refusals: its own, and while it waits those of its demand."""
    of_its_demand = and_(
        col(DemandRefusalsRow.project_id) == Job.project_id,
        col(DemandRefusalsRow.demand_key) == Job.demand_key,
    )
    waiting = [job.id for job in jobs if job.status == JobStatus.WAITING_FOR_RESOURCES]
    query = (
        select(Job.id, DemandRefusalsRow.refusals)
        .join(DemandRefusalsRow, of_its_demand)
        .where(col(Job.id).in_(waiting), is_waiting())
    )
    shared = {row.id: row.refusals for row in session.execute(query)} if waiting else {}
    return {job.id: [*job.placement_refusals, *shared.get(job.id, [])] for job in jobs}
