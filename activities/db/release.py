"""Giving back what a job holds on nodes, inside the transaction that says so."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, GpuAllocation, Node, UsageMeter


def release_job(session: Session, job_id: str, at: datetime) -> int:
    """End every live allocation of a job, its GPUs with it; how many there were.

    The meters of its runs no longer count as what the payer spends by the hour.
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
        _give_back(session, live)
    session.execute(
        update(UsageMeter)
        .where(col(UsageMeter.job_id) == job_id, col(UsageMeter.running).is_(True))
        .values(running=False)
    )
    return len(live)


def _give_back(session: Session, released: Sequence[Allocation]) -> None:
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
