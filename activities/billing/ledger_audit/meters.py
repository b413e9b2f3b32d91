"""The usage meters of jobs, by the runs that the details of their transactions name."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlmodel import Session

from activities.db.tables import UsageMeter

Run = tuple[str, int, int]
"""A run: the id of its job, its worker and its attempt."""


def meters_of(session: Session, job_ids: Sequence[str]) -> dict[Run, UsageMeter]:
    """The meters of jobs, by run."""
    job_id: Any = UsageMeter.job_id
    found = session.execute(select(UsageMeter).where(job_id.in_(job_ids))).scalars()
    return {(each.job_id, each.worker, each.attempt): each for each in found}


def run_of(row: Any) -> Run:
    """The run that a transaction is of; one that it does not name has no meter."""
    return (row.job_id, row.details.get("worker", -1), row.details.get("attempt", -1))


def name_of(meter: UsageMeter) -> str:
    """A meter, in a difference."""
    return f"{meter.job_id} worker {meter.worker} attempt {meter.attempt}"
