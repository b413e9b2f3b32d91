"""The refusal of waiting jobs while no process serves the planning queue."""

from datetime import datetime

from sqlalchemy import update
from sqlmodel import col, select

from activities.db.session import database
from activities.db.tables import Allocation, Job
from workflows.contracts.placement import Refusal
from workflows.contracts.statuses import JobStatus

NO_PLANNER = Refusal(
    offer_id="none",
    code="no-planner",
    detail="no process plans placements, so no job is placed (python -m workers planning)",
)


def refuse_unplanned(since: datetime | None) -> None:
    """Show the refusal `no-planner` at the jobs that wait, until `accept_unplanned`.

    since: jobs that have not changed since then show it already; None: no job does.
    """
    placed = select(Allocation.id).where(
        col(Allocation.job_id) == Job.id, col(Allocation.attempt) == Job.attempt
    )
    which = [col(Job.status) == JobStatus.WAITING_FOR_RESOURCES, ~placed.exists()]
    if since is not None:
        which.append(col(Job.updated_at) >= since)
    with database().write() as session:
        shown = [NO_PLANNER.model_dump(mode="json")]
        session.execute(update(Job).where(*which).values(placement_refusals=shown))


def accept_unplanned() -> None:
    """Take the refusal back, because a process plans placements again."""
    waiting = select(Job.id, Job.placement_refusals).where(
        col(Job.status) == JobStatus.WAITING_FOR_RESOURCES
    )
    with database().write() as session:
        found = session.exec(waiting).all()
        rows = [
            {"id": job_id, "placement_refusals": []}
            for job_id, refusals in found
            if any(refusal["code"] == NO_PLANNER.code for refusal in refusals)
        ]
        if rows:
            session.execute(update(Job), rows)
