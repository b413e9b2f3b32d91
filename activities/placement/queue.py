"""The queue of placement: the demands of waiting jobs, each with the jobs that have it.

Reading takes one query for any number of jobs, and more only for jobs that are placed.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, func, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from activities.billing.balances import able_to_pay
from activities.db.session import database
from activities.db.tables import Allocation, Job, Project
from activities.jobs.submissions import submission_of
from workflows.contracts.placement import Demand, PendingDemand, PendingJob
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.resources import demand_key, demand_of

PAGE = 100
_FIRST_PAGE = 8
_KEYS_AT_ONCE = 1000
_UNREADABLE = "unreadable/"
_ORDER = (col(Job.waiting_since), col(Job.id))

log = structlog.get_logger("waiting")


class MissingKeysError(Exception):
    """The error when waiting jobs have no demand key, or one cannot share the key that it has.

    heads: the rows of first jobs of their demands that this release cannot read.
    """

    def __init__(self, heads: list[Any]) -> None:
        super().__init__(f"waiting jobs: no demand key, or not readable: {[r.id for r in heads]}")
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
    return col(job.status) == JobStatus.WAITING_FOR_RESOURCES


def waiting_queue(
    session: Session, gpu_types: Iterable[str], projects: Collection[str] = ()
) -> Queue:
    """The demands of all jobs that wait for resources.

    gpu_types: the GPU types of the platform's nodes, and of what is sold.
    projects: those that policies of public regions name; the demands of others do not differ.
    Raises: MissingKeysError; call `add_missing_keys` with its heads, and read again.
    """
    found = session.execute(_heads()).all()
    rows = [row for row in found if row.demand_key is not None]
    known = set(gpu_types)
    able = able_to_pay(session, {each for row in rows for each in _payers_of(row).values()})
    queue = Queue(job_count=sum(row.job_count for row in rows))
    unreadable: list[Any] = []
    for row in rows:
        demand = _demand_of(row, known, able)
        if demand is not None and row.project_id in projects:
            demand = replace(demand, project_id=row.project_id)
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
    if unreadable or len(rows) < len(found):
        raise MissingKeysError(unreadable)
    return queue


def _payers_of(row: Any) -> dict[str, str]:
    """The accounts whose credits a job waits for: its own, and the creator of a federated job."""
    payers = {"usage": row.account_id}
    if row.federated_id and row.creator_account_id != row.account_id:
        payers["fee"] = row.creator_account_id  # One owner of both sides pays no fee.
    return payers


def _heads() -> Any:
    """The query for the first job of each demand, and how many jobs have it."""
    groups = (
        select(
            col(Job.project_id),
            col(Job.priority),
            col(Job.demand_key),
            func.count().label("job_count"),
        )
        .where(is_waiting())
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
            Job.creator_account_id,
            Job.federated_id,
            Job.project_id,
            Job.priority,
            Job.demand_key,
            Job.waiting_since,
            Job.attempt,
            Job.name,
            Job.data_bytes,
            Job.spec,
            Project.use_only_owned_resources,
            Project.on_quota_exhausted,
        )
        .select_from(groups)
        .outerjoin(Job, col(Job.id) == head_id)  # No head: jobs without a key wait.
        .outerjoin(Project, col(Project.id) == groups.c.project_id)
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
                # Few of most demands fit, so the pages grow with what has been asked for.
                page = iter(_page_after(session, row, head, min(PAGE, max(_FIRST_PAGE, number))))
                following = next(page)
            row = following
        job = PendingJob(
            job_id=row.id,
            project_id=head.project_id,
            priority=head.priority,
            waiting_since=row.waiting_since,
            attempt=row.attempt,
            demand=demand,
            name=row.name,
        )
        queue.read[job.job_id] = job
        yield job


def _page_after(session: Session, last: Any, head: Any, limit: int) -> list[Any]:
    since = col(Job.waiting_since)
    later = or_(
        since > last.waiting_since, and_(since == last.waiting_since, col(Job.id) > last.id)
    )
    query = (
        select(Job.id, Job.waiting_since, Job.attempt, Job.name)
        .where(
            is_waiting(),
            _has_demand_of(head),
            since >= last.waiting_since,
            later,
        )
        .order_by(*_ORDER)
        .limit(limit)
    )
    return list(session.execute(query).all())


def _has_demand_of(head: Any) -> ColumnElement[bool]:
    return and_(
        _waits(),
        col(Job.project_id) == head.project_id,
        col(Job.priority) == head.priority,
        col(Job.demand_key) == head.demand_key,
    )


def _demand_of(row: Any, known_gpu_types: set[str], able: set[str]) -> Demand | None:
    """The demand of a row; None when the row cannot be read and waits for a person.

    able: the accounts that have credits.
    """
    payers = _payers_of(row)
    try:
        submission = submission_of(row.spec)
        demand = demand_of(submission, row.account_id, known_gpu_types, row.data_bytes)
    except (ValueError, LookupError, TypeError) as cause:
        log.warning("not placed", job=row.id, why=str(cause))
        return None
    return replace(
        demand,
        only_owned=bool(row.use_only_owned_resources or demand.only_owned),
        needs_confinement=row.federated_id is not None,
        has_credits=able.issuperset(payers.values()),
        has_fee_credits=payers.get("fee") is None or payers["fee"] in able,
        fails_on_quota=row.on_quota_exhausted == "fail",
    )


def add_missing_keys(heads: Iterable[Any]) -> None:
    """Compute the demand keys of waiting jobs that have none, as earlier releases write them.

    heads: of jobs that cannot be read. Among the first jobs with their demands, each that cannot be
    read gets a demand of its own.
    """
    with database().write() as session:
        for head in heads:
            first = select(Job.id).where(_has_demand_of(head)).order_by(*_ORDER)
            of_demand = col(Job.id).in_(first.limit(_KEYS_AT_ONCE))
            session.execute(update(Job).where(of_demand).values(demand_key=None))
    while _add_some_keys():
        pass


def _add_some_keys() -> bool:
    """Whether there were waiting jobs without a key."""
    lacks_key = (_waits(), col(Job.demand_key).is_(None))
    columns = (
        Job.id, Job.account_id, Job.creator_account_id, Job.federated_id, Job.spec,
        Job.data_bytes, Job.attempt, Job.created_at, Job.updated_at,
    )  # fmt: skip
    with database().read() as session:
        query = select(*columns).where(*lacks_key)  # type: ignore[call-overload]
        rows = session.execute(query.order_by(col(Job.id)).limit(_KEYS_AT_ONCE)).all()
    if not rows:
        return False
    with database().write() as session:
        for row in rows:
            session.execute(
                update(Job)
                .where(col(Job.id) == row.id, *lacks_key)
                .values(demand_key=_key_of(row), waiting_since=_waiting_since(row))
            )
    return True


def _key_of(row: Any) -> str:
    """The demand key of a row; one that cannot be read shares its demand with no other."""
    try:
        creator_id = row.creator_account_id if row.federated_id is not None else None
        return demand_key(submission_of(row.spec), row.account_id, row.data_bytes, creator_id)
    except (ValueError, LookupError, TypeError):
        return f"{_UNREADABLE}{row.id}"


def _waiting_since(row: Any) -> datetime:
    """The start of the wait: for a later attempt, the last step of the job."""
    since: datetime = row.updated_at if row.attempt > 1 else row.created_at
    return since
