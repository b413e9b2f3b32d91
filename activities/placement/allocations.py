"""Writing a plan: allocations, GPUs, the counters of nodes and the usage rates of jobs.

The plan comes from rows that were read before. Each part is therefore checked against the rows
again: by locks on the jobs, by conditions on the nodes, by unique indexes on GPUs and ports. The
plan is written completely or not at all. A job confirms the same rows here, and they are freed here
when the end of its runs is proved.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, func, insert, update
from sqlmodel import Session, col, select

from activities.db.ids import new_id
from activities.db.tables import Allocation, GpuAllocation, Job, Node, UsageMeter
from activities.nodes.ephemeral import dismiss_ephemeral, stay
from activities.outbox.requests import enqueue
from activities.placement.allocation_states import is_of_job
from activities.placement.volume_holds import hold_volumes, release_holds
from activities.settings import settings
from workflows.contracts.billing import UsageRates
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.placement import Assignment, NodeOffer, PendingJob, WorkerSlot
from workflows.contracts.statuses import AllocationState, JobStatus, NodeStatus
from workflows.rules.billing.market_prices import market_rates
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.counts import counted
from workflows.rules.placement.inventory import reserved_cpus


class ContendedError(Exception):
    """The error when rows have changed since the planning round read them; plan again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A placed job of the plan, with the nodes and GPUs of all its workers."""

    job: PendingJob
    slots: tuple[tuple[WorkerSlot, NodeOffer], ...]

    def cpus(self, offer: NodeOffer) -> int:
        """The number of CPUs that a worker of the job holds on this node."""
        asked = self.job.demand
        return reserved_cpus(asked.cpu_count, asked.gpu_count, offer.cpu_count, len(offer.gpus))


def placed_of(
    assignment: Assignment, jobs: Mapping[str, PendingJob], offers: Mapping[str, NodeOffer]
) -> Placed:
    """The placed job of an assignment, with its job and nodes instead of their ids."""
    slots = tuple((slot, offers[slot.node_id]) for slot in assignment.slots)
    return Placed(jobs[assignment.job_id], slots)


def still_waiting(session: Session, jobs: Iterable[PendingJob]) -> set[str]:
    """Ids of the jobs that still wait in the same attempt, locked until the commit.

    Call this before any node is locked. A job that another transaction is writing is left out, for
    the next planning round.
    """
    attempts = {job.job_id: job.attempt for job in jobs}
    if not attempts:
        return set()
    locked = session.execute(
        select(Job.id, Job.attempt)
        .where(col(Job.id).in_(attempts), Job.status == JobStatus.WAITING_FOR_RESOURCES)
        .order_by(col(Job.id))
        .with_for_update(skip_locked=True)
    ).all()
    # A separate statement also reads what was committed while this one waited for its locks.
    placed = session.execute(
        select(Allocation.job_id, Allocation.attempt).where(col(Allocation.job_id).in_(attempts))
    ).all()
    return {job_id for job_id, attempt in locked if attempts[job_id] == attempt} - {
        job_id for job_id, attempt in placed if attempts[job_id] == attempt
    }


def reserve(session: Session, chosen: list[Placed], now: datetime) -> None:
    """Reserve resources for all these jobs, which the caller has locked.

    Raises: ContendedError or IntegrityError, when the plan is out of date; the caller must not
    commit.
    """
    if not chosen:
        return
    _take_from_nodes(session, chosen)
    allocations = [row for placed in chosen for row in _allocations(placed, now)]
    values = [_job_values(placed, now) for placed in chosen]
    write_allocations(session, allocations, values, [placed.job for placed in chosen])


def write_allocations(
    session: Session,
    allocations: list[dict[str, Any]],
    values: list[dict[str, Any]],
    jobs: Iterable[PendingJob],
) -> None:
    """Insert rows of allocations with their GPUs and volumes, and write the values of their jobs.

    Raises: IntegrityError, when another allocation holds one of these GPUs, ports or reservations,
    or writes to one of the volumes; ContendedError, when another one holds a volume.
    """
    gpus = [
        {"allocation_id": row["id"], "gpu_index": index, "node_id": row["node_id"]}
        for row in allocations
        for index in row["gpu_indices"]
    ]
    session.execute(insert(Allocation), allocations)
    if gpus:
        session.execute(insert(GpuAllocation), gpus)
    if taken := hold_volumes(session, allocations, {job.job_id: job for job in jobs}):
        raise ContendedError(taken)
    session.execute(update(Job), values)


def _take_from_nodes(session: Session, chosen: list[Placed]) -> None:
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for placed in chosen:
        for slot, offer in placed.slots:
            cpus[slot.node_id] += placed.cpus(offer)
            memory[slot.node_id] += placed.job.demand.memory_bytes
    for node_id in sorted(cpus):  # The same order everywhere prevents a deadlock.
        reserved_cpus_then = col(Node.reserved_cpu_count) + cpus[node_id]
        reserved_memory_then = col(Node.reserved_memory_bytes) + memory[node_id]
        taken = session.execute(
            update(Node)
            .where(
                col(Node.id) == node_id,
                col(Node.status) == NodeStatus.ACTIVE,
                reserved_cpus_then <= col(Node.cpu_count),
                reserved_memory_then <= col(Node.memory_bytes),
            )
            .values(
                reserved_cpu_count=reserved_cpus_then, reserved_memory_bytes=reserved_memory_then
            )
        )
        if not isinstance(taken, CursorResult) or taken.rowcount != 1:
            asked = f"{counted(cpus[node_id], 'CPU')} and {memory[node_id]} bytes of memory"
            raise ContendedError(
                f"node {node_id}: asked {asked}, no longer free or no longer active"
            )


def _allocations(placed: Placed, now: datetime) -> list[dict[str, Any]]:
    rates = _rates(placed, now)
    return [
        {
            "id": new_id("alc"),
            "job_id": placed.job.job_id,
            "worker": slot.worker,
            "attempt": placed.job.attempt,
            "node_id": slot.node_id,
            "cpu_count": placed.cpus(offer),
            "memory_bytes": placed.job.demand.memory_bytes,
            "gpu_indices": list(slot.gpu_indices),
            "port": placed.job.demand.port,
            "reservation_id": placed.job.demand.reservation_id,
            "rates": rates[str(slot.worker)],
            "created_at": now,
        }
        for slot, offer in placed.slots
    ]


def _job_values(placed: Placed, now: datetime) -> dict[str, Any]:
    """The values of a placed job's row; its usage rates stay fixed while the job runs."""
    return {"id": placed.job.job_id, "rates": _rates(placed, now), "placement_refusals": []}


def _rates(placed: Placed, now: datetime) -> dict[str, dict[str, Any]]:
    """The rates of each worker, by its number: usage fees, or of a guest the market price."""
    return {
        str(slot.worker): _rates_of(placed, slot, offer, now).model_dump(mode="json")
        for slot, offer in placed.slots
    }


def _rates_of(placed: Placed, slot: WorkerSlot, offer: NodeOffer, now: datetime) -> UsageRates:
    gpus, cpus = len(slot.gpu_indices), placed.cpus(offer)
    if offer.account_id != placed.job.demand.account_id and offer.gpu_type is not None:
        return market_rates(offer.gpu_type, gpus, cpus, now)
    core_hour = settings().cpu_core_hour_microcredits
    return usage_rates(offer.gpu_type, gpus, cpus, now, core_hour)


def lock_jobs(session: Session, job_ids: Iterable[str]) -> list[str]:
    """Lock the rows of these jobs until the commit, and return their ids.

    Everywhere rows are locked in one order, so that no two transactions wait for each other: jobs
    by their ids, then allocations by their ids, then nodes by their ids.
    """
    query = select(Job.id).where(col(Job.id).in_(set(job_ids))).order_by(col(Job.id))
    return list(session.exec(query.with_for_update()))


def lock_allocations(session: Session, *conditions: ColumnElement[bool]) -> list[Allocation]:
    """The allocations that meet the conditions, locked until the commit; lock their jobs first."""
    query = select(Allocation).where(*conditions).order_by(col(Allocation.id))
    return list(session.exec(query.with_for_update()))


def confirm_allocations(session: Session, allocation_ids: Collection[str], at: datetime) -> bool:
    """Let their job, which the caller has locked, take these allocations over; repeatable.

    False, with nothing changed: not all of them are live any more.
    """
    chosen = (col(Allocation.id).in_(allocation_ids), is_of_job())
    if len(lock_allocations(session, *chosen)) < len(allocation_ids):
        return False
    notified_at = func.coalesce(col(Allocation.notified_at), at)
    running = {"state": AllocationState.RUNNING, "notified_at": notified_at}
    session.execute(update(Allocation).where(*chosen).values(running))
    return True


def release_allocations(
    session: Session,
    job_id: str,
    at: datetime,
    *,
    leaving: Collection[str] = (),
    staying_nodes: Iterable[str] = (),
) -> list[str]:
    """Release all allocations of a job, and request the removal of its ephemeral nodes.

    The job's row is locked by the caller. The usage meters of the job no longer count in the burn
    rate. Returns the ids of the outbox rows to relay after the commit.
    leaving: the allocations whose runs nobody has seen end. They stay live and go over to their
    nodes, which are asked to end the runs; an archived node has none any more.
    staying_nodes: the ephemeral nodes to retain.
    """
    held = lock_allocations(session, col(Allocation.job_id) == job_id, is_of_job())
    stay(session, staying_nodes)
    open_nodes = select(Node.id).where(
        col(Node.id).in_({each.node_id for each in held}), Node.status != NodeStatus.ARCHIVED
    )
    owners = set(session.exec(open_nodes))
    left = [each for each in held if each.id in leaving and each.node_id in owners]
    free_allocations(session, [each for each in held if each not in left], at)
    session.execute(
        update(Allocation)
        .where(col(Allocation.id).in_([each.id for each in left]))
        .values(state=AllocationState.LEAVING)
    )
    session.execute(
        update(UsageMeter)
        .where(col(UsageMeter.job_id) == job_id, col(UsageMeter.running).is_(True))
        .values(running=False)
    )
    requests = [
        enqueue(session, node_id, "refresh", Refresh(), at)
        for node_id in sorted({each.node_id for each in left})
    ]
    return requests + dismiss_ephemeral(session, (each.node_id for each in held), at)


def free_allocations(session: Session, ended: Sequence[Allocation], at: datetime) -> None:
    """Free what these allocations hold, which the caller has locked, as their runs have ended."""
    if not ended:
        return
    ids = [allocation.id for allocation in ended]
    gone = {"state": AllocationState.GONE, "released_at": at}
    session.execute(update(Allocation).where(col(Allocation.id).in_(ids)).values(gone))
    session.execute(
        update(GpuAllocation)
        .where(col(GpuAllocation.allocation_id).in_(ids))
        .values(released_at=at)
    )
    release_holds(session, ids, at)
    free_capacity(session, ended)


def free_capacity(session: Session, released: Sequence[Allocation]) -> None:
    """Free the CPUs and memory of these allocations on their nodes."""
    cpus: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = defaultdict(int)
    for allocation in released:
        cpus[allocation.node_id] += allocation.cpu_count
        memory[allocation.node_id] += allocation.memory_bytes
    for node_id in sorted(cpus):  # The same order everywhere prevents a deadlock.
        session.execute(
            update(Node)
            .where(col(Node.id) == node_id)
            .values(
                reserved_cpu_count=col(Node.reserved_cpu_count) - cpus[node_id],
                reserved_memory_bytes=col(Node.reserved_memory_bytes) - memory[node_id],
            )
        )
