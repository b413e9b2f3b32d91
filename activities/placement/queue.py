"""The queue as placement looks at it: jobs that wait for a place, each project's first ones first.

Two queries whatever the number of jobs.
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
    """A job that waits, with what is only needed when its row is written."""

    pending: PendingJob
    refusals: list[dict[str, Any]]


def waiting_jobs(session: Session, gpu_types: Iterable[str], limit: int) -> list[WaitingJob]:
    """Jobs that wait for a place, each project's first ones first, at most `limit`.

    gpu_types: those of the platform's nodes. A job whose attempt has ever been given a place is
    not among them: its workflow has been told, or will be.
    """
    turn = func.row_number().over(
        partition_by=col(Job.project_id),
        order_by=(col(Job.priority), _waiting_since(), col(Job.id)),
    )
    placed = and_(col(Allocation.job_id) == Job.id, col(Allocation.attempt) == Job.attempt)
    queue = (
        select(col(Job.id).label("id"), turn.label("turn"))
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
        .order_by(col(Job.priority), queue.c.turn, col(Job.id))
        .limit(limit)
    ).all()
    known = set(gpu_types)
    able = able_to_pay(session, {row.account_id for row in rows})
    found = (_waiting_of(row, known, has_credits=row.account_id in able) for row in rows)
    return [job for job in found if job is not None]


def _waiting_since() -> ColumnElement[datetime]:
    """A service that was started again waits since then: its last step has said so."""
    return case((col(Job.attempt) > 1, col(Job.updated_at)), else_=col(Job.created_at))


def _waiting_of(row: Any, known_gpu_types: set[str], *, has_credits: bool) -> WaitingJob | None:
    """None: it cannot be read. It waits for a person, the others do not wait for it."""
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
