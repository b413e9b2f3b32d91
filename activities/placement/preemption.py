"""Pre-empting guests: their notice, and after it the request that they leave; each happens once.

A notice that no job of the owner needs any more is withdrawn.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, update
from sqlmodel import Session, col, select

from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.db.tables import Allocation, EventRow, Job, Node, Region
from activities.outbox.requests import enqueue
from activities.placement.allocation_states import is_of_job
from activities.placement.allocations import lock_allocations, lock_jobs
from workflows.contracts.events import JobEvent
from workflows.contracts.jobs import NodeEnding
from workflows.contracts.placement import RunningGuest
from workflows.contracts.regions import GuestPolicy
from workflows.contracts.statuses import AllocationState

REASON = "its owner needs it for a job of their own"


def running_guests(session: Session) -> tuple[RunningGuest, ...]:
    """The guests that run on nodes of regions whose policy lets them be pre-empted."""
    notices = _notices(session)
    if not notices:
        return ()
    query = (
        select(Allocation)
        .join(Node, col(Node.id) == col(Allocation.node_id))
        .join(Job, col(Job.id) == col(Allocation.job_id))
        .where(
            col(Node.region_id).in_(notices),
            col(Job.account_id) != col(Node.account_id),
            col(Allocation.state) == AllocationState.RUNNING,
            is_of_job(),
        )
        .order_by(col(Allocation.id))
    )
    return tuple(
        RunningGuest(
            job_id=held.job_id,
            node_id=held.node_id,
            gpu_count=len(held.gpu_indices),
            cpu_count=held.cpu_count,
            memory_bytes=held.memory_bytes,
            since=held.created_at,
            noticed=held.preemption_noticed_at is not None,
        )
        for held in session.exec(query)
    )


def due_guests(session: Session, now: datetime) -> list[str]:
    """The ids of the jobs whose notice is over, and that are not asked to leave yet.

    A notice stands as it was given, whatever the policy of the region says since.
    """
    query = select(Allocation.job_id).where(
        col(Allocation.preemption_due_at) <= now,
        col(Allocation.preempted_at).is_(None),
        is_of_job(),
    )
    return sorted(set(session.exec(query)))


def give_notice(session: Session, job_ids: Collection[str], now: datetime) -> None:
    """Give these guests notice, with an event of each job."""
    for job_id in lock_jobs(session, job_ids):
        unnoticed = (
            col(Allocation.job_id) == job_id,
            col(Allocation.preemption_noticed_at).is_(None),
            is_of_job(),
        )
        held = lock_allocations(session, *unnoticed)
        if not held:
            continue
        node = session.get_one(Node, held[0].node_id)
        region = session.get_one(Region, node.region_id)
        due_at = now + timedelta(seconds=_notice_s(region.guest_policy) or 0)
        session.execute(
            update(Allocation)
            .where(col(Allocation.id).in_([each.id for each in held]))
            .values(preemption_noticed_at=now, preemption_due_at=due_at)
        )
        event = _Event(
            JobEvent.PREEMPTION_NOTICED,
            f"node {node.id}: the job leaves it at {due_at:%Y-%m-%d %H:%M:%S} UTC with its state, "
            f"{REASON}; what it runs there until then is billed",
            {"node_id": node.id, "leaves_at": due_at.isoformat()},
        )
        _record(session, session.get_one(Job, job_id), event, now)


def withdraw_notice(session: Session, job_ids: Collection[str], now: datetime) -> None:
    """Withdraw the notice of these guests, with an event of each job; those that were asked to
    leave already do."""
    for job_id in lock_jobs(session, job_ids):
        held = lock_allocations(session, *_noticed(job_id))
        if not held:
            continue
        session.execute(
            update(Allocation)
            .where(col(Allocation.id).in_([each.id for each in held]))
            .values(preemption_noticed_at=None, preemption_due_at=None)
        )
        node_id = held[0].node_id
        event = _Event(
            JobEvent.PREEMPTION_WITHDRAWN,
            f"node {node_id}: the job stays; the job of the node's owner needs no room any more",
            {"node_id": node_id},
        )
        _record(session, session.get_one(Job, job_id), event, now)


def preempt(session: Session, job_ids: Collection[str], now: datetime) -> list[str]:
    """Ask these guests to leave with their state; return the ids of the outbox rows to relay.

    What they run from now on is free. A notice that was withdrawn meanwhile is none.
    """
    requests = []
    for job_id in lock_jobs(session, job_ids):
        held = lock_allocations(session, *_noticed(job_id))
        if not held:
            continue
        session.execute(
            update(Allocation)
            .where(col(Allocation.id).in_([each.id for each in held]))
            .values(preempted_at=now)
        )
        leave = NodeEnding(node_id=held[0].node_id, reason=REASON)
        requests.append(enqueue(session, job_id, "node_ending", leave, now))
    return requests


def _notices(session: Session) -> dict[str, int]:
    """The notice in seconds of each public region whose policy lets guests be pre-empted."""
    rows = session.execute(
        select(Region.id, Region.guest_policy).where(
            col(Region.public).is_(True), col(Region.guest_policy).is_not(None)
        )
    )
    return {region_id: notice_s for region_id, stored in rows if (notice_s := _notice_s(stored))}


def _notice_s(stored: object) -> int | None:
    return GuestPolicy.model_validate(stored or {}).preemption_notice_s


def _noticed(job_id: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions of the allocations of a job that has notice, and is not asked to leave yet."""
    return (
        col(Allocation.job_id) == job_id,
        col(Allocation.preemption_noticed_at).is_not(None),
        col(Allocation.preempted_at).is_(None),
        is_of_job(),
    )


@dataclass(frozen=True)
class _Event:
    type: JobEvent
    message: str
    details: dict[str, str]


def _record(session: Session, job: Job, event: _Event, now: datetime) -> None:
    advisory_lock(session, f"events/{job.account_id}")
    step = EventRow.resource_id == job.id, EventRow.sequence == job.sequence
    last = session.exec(select(func.max(EventRow.index)).where(*step)).one()
    session.add(
        EventRow(
            id=new_id("evt"),
            account_id=job.account_id,
            resource_id=job.id,
            sequence=job.sequence,
            index=0 if last is None else last + 1,
            type=event.type,
            message=event.message,
            details=event.details,
            at=now,
        )
    )
