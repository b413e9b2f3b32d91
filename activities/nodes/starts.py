"""Starts of node lifecycles from their rows, and their progress after a restart."""

from sqlmodel import Session, col, select

from activities.db.tables import EventRow, Lease, Node, Region
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
from workflows.contracts.events import NodeEvent
from workflows.contracts.leases import MachineLost, ReleaseProgress
from workflows.contracts.machines import MachineClaim
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType
from workflows.rules.nodes.onboarding import TRIES, first_status_of

_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE)
_LEAVING = (LeaseStatus.RELEASING, LeaseStatus.RELEASED, LeaseStatus.REFUSED)
_DECISIVE = (
    NodeEvent.ACTIVE,
    NodeEvent.MAINTENANCE,
    NodeEvent.PREPARED,
    NodeEvent.PROTOCOL_VIOLATED,
)


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


def _ready_lease(session: Session, row: Node) -> str | None:
    """The ready lease of the node's present machine."""
    lease = _last_lease(session, row)
    return lease.id if lease is not None and _is_its_machine(lease, row) else None


def _is_its_machine(lease: Lease, row: Node) -> bool:
    return (lease.status, lease.minion_id) == (LeaseStatus.READY, row.minion_id)


def resume_node(session: Session, row: Node, request: NodeRequest) -> NodeRequest:
    """The request that adopts a node: it comes back to the status of its row.

    An onboarding begins anew. A node whose lease has ended has lost its machine.
    """
    lease = None if row.machine is None else _last_lease(session, row)
    was_used = _was_used(session, row)
    resume_status = NodeStatus.ACTIVE if _was_active(session, row) else NodeStatus.MAINTENANCE
    if not was_used:
        resume_status = first_status_of(request.services, is_leased=row.machine is not None)
    removal = removal_of(row)
    resumed_from = NodeProgress(
        sequence=row.sequence,
        status=_status(row, lease, resume_status),
        resume_status=resume_status,
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
        minion_id=row.minion_id,
        lease_id=lease.id if lease else "",
        tries_left=TRIES if was_used else 0,
        lost=None if lease is None else _loss(lease),
        releasing=None if lease is None else _release_of(lease),
        reason=row.status_reason,
        removal=removal.removal if removal else None,
        ended_by=row.status_reason if removal else None,
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _status(row: Node, lease: Lease | None, resume_status: NodeStatus) -> NodeStatus:
    """The status in which the node's lifecycle goes on."""
    status = NodeStatus(row.status)
    if status is NodeStatus.REMOVING:
        return status if row.removal_force else resume_status
    is_leased = lease is not None and LeaseStatus(lease.status) in _LEAVING
    has_machine = lease is not None and _is_its_machine(lease, row)
    if row.machine is None or status not in _IN_USE or has_machine or is_leased:
        return status
    return NodeStatus.CONNECTING  # Its next machine is being created.


def _last_lease(session: Session, row: Node) -> Lease | None:
    query = select(Lease).where(col(Lease.holder_id) == row.id)
    return session.exec(query.order_by(col(Lease.id).desc())).first()


def _loss(lease: Lease) -> MachineLost | None:
    """What a lease that has ended tells its node; None: its machine may still be there.

    A lease that is being released notifies the node itself, when the machine has ended.
    """
    if not LeaseStatus(lease.status).is_final:
        return None
    ending = _ending_of(lease)
    if ending is not None and ending.lost is not None:
        return ending.lost
    by_person = bool(ending and ending.released and ending.released.by_person)
    return MachineLost(
        lease_id=lease.id,
        reason=lease.status_reason or f"its lease is {lease.status}",
        by_person=by_person,
        ended_at=lease.ended_at,
    )


def _release_of(lease: Lease) -> str | None:
    """Why the node itself releases the lease, which does not notify the node then; None: it does
    not release it."""
    ending = _ending_of(lease)
    if lease.status != LeaseStatus.RELEASING or ending is None or ending.released is None:
        return None
    return ending.released.reason if ending.released.by_holder else None


def _ending_of(lease: Lease) -> ReleaseProgress | None:
    return None if lease.ending is None else ReleaseProgress.model_validate(lease.ending)


def _was_active(session: Session, row: Node) -> bool:
    """Whether the node was active before it went offline or its removal began, from its events.

    A person activates a node; a leased node becomes active by its preparation. After a protocol
    violation an own machine takes no jobs by itself, and a leased one was replaced.
    """
    if row.status == NodeStatus.ACTIVE:
        return True
    last = _last_decisive(session, row)
    by_itself = (NodeEvent.PREPARED, NodeEvent.PROTOCOL_VIOLATED)
    return last == NodeEvent.ACTIVE or (row.machine is not None and last in by_itself)


def _was_used(session: Session, row: Node) -> bool:
    """Whether the node has been onboarded before."""
    return row.status in _IN_USE or _last_decisive(session, row) is not None


def _last_decisive(session: Session, row: Node) -> str | None:
    return session.exec(
        select(EventRow.type)
        .where(col(EventRow.resource_id) == row.id, col(EventRow.type).in_(_DECISIVE))
        .order_by(col(EventRow.position).desc())
    ).first()
