"""Starts of node lifecycles from their rows, and their progress after a restart."""

from sqlmodel import Session, col, select

from activities.db.tables import EventRow, Lease, Node, Region
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from workflows.contracts.events import NodeEvent
from workflows.contracts.machines import MachineClaim
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType

_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE, NodeStatus.REMOVING)


def start_node(session: Session, row: Node) -> WorkflowStart[NodeRequest]:
    """The start of a node's workflow."""
    region = session.get_one(Region, row.region_id)
    request = NodeRequest(
        node_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        minion_id=row.minion_id,
        type=NodeType(row.type),
        services=tuple(row.services),
        machine=None if row.machine is None else MachineClaim.model_validate(row.machine),
        host=row.host,
        port=row.port,
        user=row.user,
        root=region.node_root,
        own_worker=region.own_worker,
        exclusive=region.exclusive_nodes,
        public=region.public,
        central_storage=region.storage_mode == "central",
        relaxed_requirements=tuple(region.relaxed_requirements),
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.region_id, "NodeId": row.id, "ProviderKind": region.provider_kind}
    if row.machine is not None and (lease_id := _ready_lease(session, row)) is not None:
        found_by["LeaseId"] = lease_id
    return workflow_start(row, request, found_by)


def resume_node(session: Session, row: Node, request: NodeRequest) -> NodeRequest:
    """The request of a node whose workflow is restarted from its row.

    A node that was in use stays in use. A node that was not in use, or whose lease has ended
    meanwhile, is onboarded again.
    """
    status = NodeStatus(row.status)
    lease_id = None if row.machine is None else _ready_lease(session, row)
    if status not in _IN_USE or row.host is None or (row.machine is not None and lease_id is None):
        return request
    resumed = NodeStatus.ACTIVE if _was_active(session, row) else NodeStatus.MAINTENANCE
    resumed_from = NodeProgress(
        sequence=row.sequence,
        status=resumed if status is NodeStatus.REMOVING else status,
        resume_status=resumed,
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
        minion_id=row.minion_id,
        lease_id=lease_id or "",
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _ready_lease(session: Session, row: Node) -> str | None:
    """The ready lease of the node's present machine."""
    query = select(Lease.id).where(
        col(Lease.holder_id) == row.id,
        col(Lease.status) == LeaseStatus.READY,
        col(Lease.minion_id) == row.minion_id,
    )
    return session.exec(query).first()


def _was_active(session: Session, row: Node) -> bool:
    """Whether the node was active before it went offline or its removal began, from its events.

    A person activates a node; a leased node becomes active by its preparation.
    """
    if row.status == NodeStatus.ACTIVE:
        return True
    decisive = (NodeEvent.ACTIVE, NodeEvent.MAINTENANCE, NodeEvent.PREPARED)
    last = session.exec(
        select(EventRow.type)
        .where(col(EventRow.resource_id) == row.id, col(EventRow.type).in_(decisive))
        .order_by(col(EventRow.position).desc())
    ).first()
    return last == NodeEvent.ACTIVE or (row.machine is not None and last == NodeEvent.PREPARED)
