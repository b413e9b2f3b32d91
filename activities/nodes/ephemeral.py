"""Ephemeral nodes, created for one job: retaining them, or requesting their removal."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.db.tables import Allocation, Node
from activities.outbox.requests import enqueue
from activities.placement.allocation_states import is_of_job
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType

LEAVING = (NodeStatus.REMOVING, NodeStatus.ARCHIVED)


def stay(session: Session, node_ids: Iterable[str]) -> None:
    """Retain ephemeral nodes after their job, until a person or the lease's deadline ends them."""
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
    """Whether a node is retained after its job, according to its `MachineClaim`."""
    return machine is not None and bool(machine.get("stays"))


def dismiss_ephemeral(session: Session, node_ids: Iterable[str], at: datetime) -> list[str]:
    """Request the removal of those of the nodes that are ephemeral, without a job, not retained.

    A leaving allocation keeps no ephemeral node: the end of its machine is the end of the run.
    Returns the ids of the outbox rows to relay after the commit. A node that is being removed
    already gets no new request; a repeated request does no harm.
    """
    wanted = sorted(set(node_ids))
    if not wanted:
        return []
    held = select(Allocation.id).where(col(Allocation.node_id) == Node.id, is_of_job()).exists()
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
    removal = Removal(force=True, requested_by="the end of its job", reschedules=True)
    leaving = [node_id for node_id, machine in unused if not stays(machine)]
    return [enqueue(session, node_id, "remove", removal, at) for node_id in leaving]
