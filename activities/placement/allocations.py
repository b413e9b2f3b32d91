"""Writing a plan down: allocations, GPUs, counters of nodes and the rates of jobs, all or nothing.

The plan was made from what was read before. Here every part of it is held against the rows once
more: by locks on the jobs, by conditions on the nodes, by unique indexes on GPUs and ports.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, insert, update
from sqlmodel import Session, col, select

from activities.db.ids import new_id
from activities.db.tables import Allocation, GpuAllocation, Job, Node, UsageMeter
from activities.nodes.ephemeral import dismiss_ephemeral
from activities.placement.queue import WaitingJob
from activities.settings import settings
from workflows.contracts.placement import Assignment, NodeOffer, PendingJob, Refusal, WorkerSlot
from workflows.contracts.statuses import JobStatus, NodeStatus
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.placement.inventory import reserved_cpus


class ContendedError(Exception):
    """Something has changed since the plan was made: make another one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One job of the plan with all of its workers' places."""

    job: PendingJob
    slots: tuple[tuple[WorkerSlot, NodeOffer], ...]

    def cpus(self, offer: NodeOffer) -> int:
        """CPUs that a worker holds on this node."""
        asked = self.job.demand
        return reserved_cpus(asked.cpu_count, asked.gpu_count, offer.cpu_count, len(offer.gpus))


def placed_of(
    assignment: Assignment, jobs: Mapping[str, WaitingJob], offers: Mapping[str, NodeOffer]
) -> Placed:
    """The plan's names as the things that they name."""
    slots = tuple((slot, offers[slot.node_id]) for slot in assignment.slots)
    return Placed(jobs[assignment.job_id].pending, slots)


def still_waiting(session: Session, jobs: Iterable[PendingJob]) -> set[str]:
    """Ids of those that wait as they did, locked until the commit: before any node is.

    A job that somebody else is writing now is left out, for the next round.
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
    # A statement of its own: it sees what was committed before the locks were had.
    placed = session.execute(
        select(Allocation.job_id, Allocation.attempt).where(col(Allocation.job_id).in_(attempts))
    ).all()
    return {job_id for job_id, attempt in locked if attempts[job_id] == attempt} - {
        job_id for job_id, attempt in placed if attempts[job_id] == attempt
    }


def reserve(session: Session, chosen: list[Placed], now: datetime) -> None:
    """Reserve for every one of these jobs, which the caller has locked.

    Raises: ContendedError, IntegrityError: nothing may be committed, the plan is out of date.
    """
    if not chosen:
        return
    _take_from_nodes(session, chosen)
    allocations = [row for placed in chosen for row in _allocations(placed, now)]
    write_places(session, allocations, [_job_values(placed, now) for placed in chosen])


def write_places(
    session: Session, allocations: list[dict[str, Any]], jobs: list[dict[str, Any]]
) -> None:
    """Insert rows of allocations with their GPUs, and say in the rows of their jobs what they cost.

    Raises: IntegrityError, where somebody else holds one of these places.
    """
    gpus = [
        {"allocation_id": row["id"], "gpu_index": index, "node_id": row["node_id"]}
        for row in allocations
        for index in row["gpu_indices"]
    ]
    session.execute(insert(Allocation), allocations)
    if gpus:
        session.execute(insert(GpuAllocation), gpus)
    session.execute(update(Job), jobs)


def changed_refusals(
    refused: Iterable[tuple[WaitingJob, tuple[Refusal, ...]]],
) -> dict[str, list[dict[str, Any]]]:
    """What is to be written of why jobs wait, by job: only where it has changed."""
    told = ((job, [reason.model_dump(mode="json") for reason in why]) for job, why in refused)
    return {job.pending.job_id: why for job, why in told if why != job.refusals}


def write_refusals(session: Session, refusals: Mapping[str, list[dict[str, Any]]]) -> None:
    """Say why these jobs wait, which the caller has locked."""
    if refusals:
        rows = [{"id": job_id, "placement_refusals": why} for job_id, why in refusals.items()]
        session.execute(update(Job), rows)


def _take_from_nodes(session: Session, chosen: list[Placed]) -> None:
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for placed in chosen:
        for slot, offer in placed.slots:
            cpus[slot.node_id] += placed.cpus(offer)
            memory[slot.node_id] += placed.job.demand.memory_bytes
    for node_id in sorted(cpus):  # one order for all, so that no two wait for each other
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
            raise ContendedError(
                f"node {node_id}: asked {cpus[node_id]} CPUs and {memory[node_id]} bytes of "
                "memory, no longer free or no longer active"
            )


def _allocations(placed: Placed, now: datetime) -> list[dict[str, Any]]:
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
            "created_at": now,
        }
        for slot, offer in placed.slots
    ]


def _job_values(placed: Placed, now: datetime) -> dict[str, Any]:
    """Rates are fixed here: what a job costs does not change while it runs."""
    core_hour = settings().cpu_core_hour_microcredits
    rates = {
        str(slot.worker): usage_rates(
            offer.gpu_type, len(slot.gpu_indices), placed.cpus(offer), now, core_hour
        ).model_dump(mode="json")
        for slot, offer in placed.slots
    }
    return {"id": placed.job.job_id, "rates": rates, "placement_refusals": []}


def release_allocations(session: Session, job_id: str, at: datetime) -> list[str]:
    """End every live allocation of a job, its GPUs with it, and dismiss what was made for it.

    The meters of its runs no longer count as what the payer spends by the hour. Answers the
    requests that are to be relayed after the commit.
    """
    live = session.exec(
        select(Allocation)
        .where(col(Allocation.job_id) == job_id, col(Allocation.released_at).is_(None))
        .with_for_update()
    ).all()
    if live:
        ids = [allocation.id for allocation in live]
        session.execute(
            update(Allocation).where(col(Allocation.id).in_(ids)).values(released_at=at)
        )
        session.execute(
            update(GpuAllocation)
            .where(col(GpuAllocation.allocation_id).in_(ids))
            .values(released_at=at)
        )
        free_capacity(session, live)
    session.execute(
        update(UsageMeter)
        .where(col(UsageMeter.job_id) == job_id, col(UsageMeter.running).is_(True))
        .values(running=False)
    )
    return dismiss_ephemeral(session, (allocation.node_id for allocation in live), at)


def free_capacity(session: Session, released: Sequence[Allocation]) -> None:
    """What these held of their nodes' CPUs and memory is free again."""
    cpus: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = defaultdict(int)
    for allocation in released:
        cpus[allocation.node_id] += allocation.cpu_count
        memory[allocation.node_id] += allocation.memory_bytes
    for node_id in sorted(cpus):  # one order for all, so that no two wait for each other
        session.execute(
            update(Node)
            .where(col(Node.id) == node_id)
            .values(
                reserved_cpu_count=col(Node.reserved_cpu_count) - cpus[node_id],
                reserved_memory_bytes=col(Node.reserved_memory_bytes) - memory[node_id],
            )
        )
