"""The worker assignments of jobs, from their allocations."""

from sqlmodel import Session, col, select

from activities.db.tables import Allocation, Lease, Node, Region
from activities.nodes.addresses import address_of
from activities.placement.allocation_states import is_of_job
from activities.placement.inventory import SHOWN, NodeFacts, facts_of
from workflows.contracts.jobs import Placement, WorkerAssignment
from workflows.contracts.statuses import LeaseStatus, NodeType


def is_there(node: Node) -> bool:
    """Whether the node's machine exists and is prepared; a leased machine is created first."""
    return node.status in SHOWN and node.host is not None


def placements_of(session: Session, job_ids: list[str]) -> list[Placement]:
    """The placements of these jobs, from their allocations.

    A job with a machine that is still being created is left out.
    """
    rows = session.exec(
        select(Allocation, Node, Region)
        .join(Node, col(Node.id) == Allocation.node_id)
        .join(Region, col(Region.id) == Node.region_id)
        .where(col(Allocation.job_id).in_(job_ids), is_of_job())
        .order_by(col(Allocation.job_id), col(Allocation.attempt), col(Allocation.worker))
    ).all()
    facts = facts_of(session, {(node.id, node.sequence) for _, node, _ in rows})
    assignments: dict[tuple[str, int], list[WorkerAssignment]] = {}
    leases = _leases(session, {node.id for _, node, _ in rows if node.machine is not None})
    unmade = {(held.job_id, held.attempt) for held, node, _ in rows if not is_there(node)}
    for allocation, node, region in rows:
        if (allocation.job_id, allocation.attempt) in unmade:
            continue
        assignments.setdefault((allocation.job_id, allocation.attempt), []).append(
            _assignment(allocation, node, region, facts[node.id]).model_copy(
                update={"lease_id": leases.get(node.id)}
            )
        )
    return [
        Placement(job_id=job_id, attempt=attempt, assignments=tuple(assignments))
        for (job_id, attempt), assignments in assignments.items()
    ]


def _leases(session: Session, node_ids: set[str]) -> dict[str, str]:
    """Node id to the ready lease of the node's present machine."""
    if not node_ids:
        return {}
    ready = select(Lease.holder_id, Lease.id).where(
        col(Lease.holder_id).in_(node_ids), Lease.status == LeaseStatus.READY
    )
    return dict(session.exec(ready).all())


def _assignment(
    allocation: Allocation, node: Node, region: Region, facts: NodeFacts
) -> WorkerAssignment:
    uuids = dict(facts.gpus)
    return WorkerAssignment(
        worker=allocation.worker,
        allocation_id=allocation.id,
        node=address_of(node, region),
        gpu_indices=tuple(allocation.gpu_indices),
        # A GPU that a later inspection no longer lists is named by its index for the driver.
        gpu_uuids=tuple(uuids.get(index, str(index)) for index in allocation.gpu_indices),
        cpu_count=allocation.cpu_count,
        memory_bytes=allocation.memory_bytes,
        runtimes=facts.runtimes,
        job_user=facts.job_user,
        ephemeral=node.type == NodeType.EPHEMERAL,
    )
