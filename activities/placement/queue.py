"""The queue of placement: the demands of waiting jobs, each with the jobs that have it.

Reading takes one query for any number of jobs, and more only for jobs that are placed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, func, literal_column, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from activities.billing.payers import able_to_pay
from activities.db.session import database
from activities.db.tables import Allocation, Job, Project
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import Demand, PendingDemand, PendingJob
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.resources import demand_key, demand_of

PAGE = 100
_KEYS_AT_ONCE = 1000
_UNREADABLE = "unreadable/"
_ORDER = (col(Job.waiting_since), col(Job.id))

log = structlog.get_logger("waiting")


class UnreadableJobsError(Exception):
    """The error when the first job of a demand cannot be read by this release.

    heads: the rows of these first jobs.
    """

    def __init__(self, heads: list[Any]) -> None:
        ids = ", ".join(row.id for row in heads)
        super().__init__(f"jobs that this release cannot read are first of their demand: {ids}")
        self.heads = heads


@dataclass(slots=True)
class Queue:
    """The waiting jobs of a planning round, as long as the session is open that has read them."""

    demands: list[PendingDemand] = field(default_factory=list)
    job_count: int = 0
    read: dict[str, PendingJob] = field(default_factory=dict)
    """The jobs that the round has read, by id."""


def is_waiting(job: type[Job] = Job) -> ColumnElement[bool]:
    """Whether a job waits for resources, and its attempt has no allocation.

    A job with an allocation is left out, because its workflow has been notified or will be.
    """
    placed = and_(
        col(Allocation.job_id) == col(job.id), col(Allocation.attempt) == col(job.attempt)
    )
    return and_(_waits(job), ~select(Allocation.id).where(placed).exists())


def _waits(job: type[Job] = Job) -> ColumnElement[bool]:
    # A literal, because SQLite uses a partial index only if the statement itself has its condition.
    return col(job.status) == literal_column(f"'{JobStatus.WAITING_FOR_RESOURCES}'")


def waiting_queue(session: Session, gpu_types: Iterable[str]) -> Queue:
    """The demands of all jobs that wait for resources.

    gpu_types: the GPU types of the platform's nodes.
    Raises: UnreadableJobsError; call `set_apart` with its heads, and read again.
    """
    rows = session.execute(_heads()).all()
    known = set(gpu_types)
    able = able_to_pay(session, {row.account_id for row in rows})
    queue = Queue(job_count=sum(row.job_count for row in rows))
    unreadable: list[Any] = []
    for row in rows:
        demand = _demand_of(row, known, has_credits=row.account_id in able)
        if demand is not None:
            queue.demands.append(
                PendingDemand(
                    project_id=row.project_id,
                    demand_key=row.demand_key,
                    priority=row.priority,
                    demand=demand,
                    jobs=_jobs(session, queue, row, demand),
                )
            )
        elif not row.demand_key.startswith(_UNREADABLE):
            unreadable.append(row)
    if unreadable:
        raise UnreadableJobsError(unreadable)
    return queue


def _heads() -> Any:
    """The query for the first job of each demand, and how many jobs have it."""
    groups = (
        select(
            col(Job.project_id),
            col(Job.priority),
            col(Job.demand_key),
            func.count().label("job_count"),
        )
        .where(is_waiting(), col(Job.demand_key).is_not(None))
        .group_by(col(Job.project_id), col(Job.priority), col(Job.demand_key))
        .subquery()
    )
    first = aliased(Job)
    head_id = (
        select(first.id)
        .where(
            is_waiting(first),
            col(first.project_id) == groups.c.project_id,
            col(first.priority) == groups.c.priority,
            col(first.demand_key) == groups.c.demand_key,
        )
        .order_by(col(first.waiting_since), col(first.id))
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(  # type: ignore[call-overload]
            groups.c.job_count,
            Job.id,
            Job.account_id,
            Job.project_id,
            Job.priority,
            Job.demand_key,
            Job.waiting_since,
            Job.attempt,
            Job.spec,
            Project.use_only_owned_resources,
            Project.on_quota_exhausted,
        )
        .select_from(groups)
        .join(Job, col(Job.id) == head_id)
        .join(Project, col(Project.id) == groups.c.project_id)
    )


def _jobs(session: Session, queue: Queue, head: Any, demand: Demand) -> Iterator[PendingJob]:
    """The jobs of a demand in their order; those behind the head are read when they are asked for.

    head: the row of the first job.
    """
    row = head
    page: Iterator[Any] = iter(())
    for number in range(head.job_count):
        if number > 0:
            following = next(page, None)
            if following is None:
                page = iter(_page_after(session, row, head))
                following = next(page)
            row = following
        job = PendingJob(
            job_id=row.id,
            project_id=head.project_id,
            priority=head.priority,
            waiting_since=row.waiting_since,
            attempt=row.attempt,
            demand=demand,
        )
        queue.read[job.job_id] = job
        yield job


def _page_after(session: Session, last: Any, head: Any) -> list[Any]:
    since = col(Job.waiting_since)
    later = or_(
        since > last.waiting_since, and_(since == last.waiting_since, col(Job.id) > last.id)
    )
    query = (
        select(Job.id, Job.waiting_since, Job.attempt)
        .where(
            is_waiting(),
            _has_demand_of(head),
            since >= last.waiting_since,
            later,
        )
        .order_by(*_ORDER)
        .limit(PAGE)
    )
    return list(session.execute(query).all())


def _has_demand_of(head: Any) -> ColumnElement[bool]:
    return and_(
        _waits(),
        col(Job.project_id) == head.project_id,
        col(Job.priority) == head.priority,
        col(Job.demand_key) == head.demand_key,
    )


def _demand_of(row: Any, known_gpu_types: set[str], *, has_credits: bool) -> Demand | None:
    """The demand of a row; None when the row cannot be read and waits for a person."""
    try:
        submission = JobSubmission.model_validate(row.spec)
        demand = demand_of(submission, row.account_id, known_gpu_types)
    except (ValueError, LookupError, TypeError) as cause:
        log.warning("not placed", job=row.id, why=str(cause))
        return None
    return replace(
        demand,
        only_owned=bool(row.use_only_owned_resources or demand.only_owned),
        has_credits=has_credits,
        fails_on_quota=row.on_quota_exhausted == "fail",
    )


def set_apart(heads: Iterable[Any]) -> None:
    """Give each job that cannot be read a demand of its own, among the first of these demands."""
    with database().write() as session:
        for head in heads:
            first = select(Job.id).where(_has_demand_of(head)).order_by(*_ORDER)
            of_demand = col(Job.id).in_(first.limit(_KEYS_AT_ONCE))
            session.execute(update(Job).where(of_demand).values(demand_key=None))
    add_missing_keys()


def add_missing_keys() -> None:
    """Compute the demand keys of waiting jobs that have none; an earlier release writes none."""
    lacks_key = (_waits(), col(Job.demand_key).is_(None))
    columns = (Job.id, Job.account_id, Job.spec, Job.attempt, Job.created_at, Job.updated_at)
    while True:
        with database().read() as session:
            query = select(*columns).where(*lacks_key)  # type: ignore[call-overload]
            rows = session.execute(query.order_by(col(Job.id)).limit(_KEYS_AT_ONCE)).all()
        if not rows:
            return
        with database().write() as session:
            for row in rows:
                session.execute(
                    update(Job)
                    .where(col(Job.id) == row.id, *lacks_key)
                    .values(demand_key=_key_of(row), waiting_since=_waiting_since(row))
                )


def _key_of(row: Any) -> str:
    """The demand key of a row; one that cannot be read shares its demand with no other."""
    try:
        return demand_key(JobSubmission.model_validate(row.spec), row.account_id)
    except (ValueError, LookupError, TypeError):
        return f"{_UNREADABLE}{row.id}"


def _waiting_since(row: Any) -> datetime:
    """The start of the wait: for a later attempt, the last step of the job."""
    since: datetime = row.updated_at if row.attempt > 1 else row.created_at
    return since
