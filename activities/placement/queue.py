"""The queue of placement: waiting jobs, the first jobs of each project first.

Reading takes two queries, for any number of jobs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, case, func
from sqlmodel import Session, col, select

from activities.billing.payers import able_to_pay
from activities.db.tables import Allocation, Job, Project
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import PendingJob
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.resources import demand_of

log = structlog.get_logger("waiting")


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A pending job, with the refusals that its row holds."""

    pending: PendingJob
    refusals: list[dict[str, Any]]


def waiting_jobs(session: Session, gpu_types: Iterable[str], limit: int) -> list[WaitingJob]:
    """At most `limit` jobs that wait for resources, the first jobs of each project first.

    A job whose attempt already has an allocation is left out, because its workflow has been
    notified or will be.

    gpu_types: the GPU types of the platform's nodes.
    """
    rank = func.row_number().over(
        partition_by=col(Job.project_id),
        order_by=(col(Job.priority), _waiting_since(), col(Job.id)),
    )
    placed = and_(col(Allocation.job_id) == Job.id, col(Allocation.attempt) == Job.attempt)
    queue = (
        select(col(Job.id).label("id"), rank.label("rank_in_project"))
        .where(
            Job.status == JobStatus.WAITING_FOR_RESOURCES,
            ~select(Allocation.id).where(placed).exists(),
        )
        .subquery()
    )
    rows = session.execute(
        select(  # type: ignore[call-overload]
            Job.id,
            Job.account_id,
            Job.project_id,
            Job.priority,
            _waiting_since().label("waiting_since"),
            Job.attempt,
            Job.spec,
            Job.placement_refusals,
            Project.use_only_owned_resources,
            Project.on_quota_exhausted,
        )
        .join(queue, queue.c.id == Job.id)
        .join(Project, col(Project.id) == Job.project_id)
        .order_by(col(Job.priority), queue.c.rank_in_project, col(Job.id))
        .limit(limit)
    ).all()
    known = set(gpu_types)
    able = able_to_pay(session, {row.account_id for row in rows})
    found = (_waiting_of(row, known, has_credits=row.account_id in able) for row in rows)
    return [job for job in found if job is not None]


def _waiting_since() -> ColumnElement[datetime]:
    """The start of the wait: for a later attempt, the last step of the job."""
    return case((col(Job.attempt) > 1, col(Job.updated_at)), else_=col(Job.created_at))


def _waiting_of(row: Any, known_gpu_types: set[str], *, has_credits: bool) -> WaitingJob | None:
    """The waiting job of a row; None when the row cannot be read and waits for a person."""
    try:
        return _waiting(row, known_gpu_types, has_credits=has_credits)
    except (ValueError, LookupError, TypeError) as cause:
        log.warning("not placed", job=row.id, why=str(cause))
        return None


def _waiting(row: Any, known_gpu_types: set[str], *, has_credits: bool) -> WaitingJob:
    submission = JobSubmission.model_validate(row.spec)
    demand = demand_of(submission, row.account_id, known_gpu_types)
    pending = PendingJob(
        job_id=row.id,
        project_id=row.project_id,
        priority=row.priority,
        waiting_since=row.waiting_since,
        attempt=row.attempt,
        demand=replace(
            demand,
            only_owned=bool(row.use_only_owned_resources or demand.only_owned),
            has_credits=has_credits,
            fails_on_quota=row.on_quota_exhausted == "fail",
        ),
    )
    return WaitingJob(pending, row.placement_refusals)
