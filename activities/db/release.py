"""Giving back what a job holds on nodes, inside the transaction that says so."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col, select

from activities.db.beginnings import ask
from activities.db.tables import Allocation, GpuAllocation, Node, UsageMeter
from workflows.contracts.lifecycles import Removal
from workflows.contracts.statuses import NodeStatus, NodeType

LEAVING = (NodeStatus.REMOVING, NodeStatus.ARCHIVED)


def release_job(session: Session, job_id: str, at: datetime) -> list[str]:
    """End every live allocation of a job, its GPUs with it, and dismiss what was made for it.

    The meters of its runs no longer count as what the payer spends by the hour. Answers the
    requests that are to be handed over after the commit.
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
        give_back(session, live)
    session.execute(
        update(UsageMeter)
        .where(col(UsageMeter.job_id) == job_id, col(UsageMeter.running).is_(True))
        .values(running=False)
    )
    return dismiss_ephemeral(session, (allocation.node_id for allocation in live), at)


def stay(session: Session, node_ids: Iterable[str]) -> None:
    """What was made for a job does not leave with it: people end it, or its lease's deadline."""
    wanted = sorted(set(node_ids))
    if not wanted:
        return
    query = select(Node).where(
        col(Node.id).in_(wanted),
        Node.type == NodeType.EPHEMERAL,
        col(Node.status).not_in(LEAVING),
    )
    for node in session.exec(query.order_by(col(Node.id)).with_for_update()):
        if node.machine is not None:
            node.machine = {**node.machine, "stays": True}
            session.add(node)
    session.flush()


def stays(machine: Mapping[str, Any] | None) -> bool:
    """Whether a node's machine, a `MachineWish`, has outlived the job that it was made for."""
    return machine is not None and bool(machine.get("stays"))


def dismiss_ephemeral(session: Session, node_ids: Iterable[str], at: datetime) -> list[str]:
    """Ask those of the nodes to be removed that were made for one job and hold none any more,
    but for those that stay.

    Answers the requests that are to be handed over after the commit. One that is leaving already
    is not asked again; asked twice, it leaves once.
    """
    wanted = sorted(set(node_ids))
    if not wanted:
        return []
    held = (
        select(Allocation.id)
        .where(col(Allocation.node_id) == Node.id, col(Allocation.released_at).is_(None))
        .exists()
    )
    unused = session.exec(
        select(Node.id, Node.machine)
        .where(
            col(Node.id).in_(wanted),
            Node.type == NodeType.EPHEMERAL,
            col(Node.status).not_in(LEAVING),
            ~held,
        )
        .order_by(col(Node.id))
    ).all()
    removal = Removal(force=True, requested_by="the end of its job")
    leaving = [node_id for node_id, machine in unused if not stays(machine)]
    return [ask(session, node_id, "remove", removal, at) for node_id in leaving]


def give_back(session: Session, released: Sequence[Allocation]) -> None:
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
