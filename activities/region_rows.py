"""What providers and regions ask of the rows: who still uses them."""

import asyncio

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.beginnings import ask
from activities.db.release import stays
from activities.db.session import database
from activities.db.tables import Allocation, Lease, Node, Region
from activities.handover import hand_over_soon
from activities.leased_nodes import LeasedNode, add_leased_node
from activities.lifecycle_requests import prefix_of, workflow_id_of
from activities.temporal import tell
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.lifecycles import Removal
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType, RegionStatus
from workflows.effects.lifecycles import DependentsFound, FindDependents, TellDependents
from workflows.effects.regions import (
    AddStorageNode,
    DismissNode,
    FindStorage,
    StorageFound,
    StorageNode,
)


@activity.defn
def find_dependents(command: FindDependents) -> DependentsFound:
    """A provider's regions, a region's nodes, a node's jobs, and leases: what has not ended."""
    with database().read() as session:
        found = dependents_of(session, command.resource_id)
        own = own_dependents_of(session, command.resource_id)
    return DependentsFound(ids=tuple(found), own_ids=tuple(one for one in found if one in own))


@activity.defn
async def tell_dependents(command: TellDependents) -> Done:
    """Send `remove` to all of them; one that has ended needs no telling.

    One that cannot be told now is told with the next look at what is left. A machine is given back
    by who has it, once nothing runs on it: leases are told when nobody else is left.
    """
    found = await asyncio.to_thread(
        find_dependents, FindDependents(resource_id=command.resource_id)
    )
    users = [one for one in found.ids if prefix_of(one) != "lea"]
    for resource_id in users or found.ids:
        try:
            await tell(workflow_id_of(resource_id), "remove", command.removal)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("%s was not told to end: %s", resource_id, cause)
    return Done()


def dependents_of(session: Session, resource_id: str) -> list[str]:
    """The ids of what still uses a resource, oldest first: its leases after what they are for."""
    return [*_users_of(session, resource_id), *_leases_of(session, resource_id)]


def own_dependents_of(session: Session, resource_id: str) -> set[str]:
    """What keeps nobody from removing a region: in a cloud its storage nodes; nodes that leave
    already, or that were made for a job which holds none any more; the machines of all these."""
    if prefix_of(resource_id) != "reg":
        return set()
    nodes = {node.id for node in _storage_of(session, resource_id)}
    leaving = session.exec(_leaving_from(resource_id)).all()
    nodes |= {node.id for node in leaving if not stays(node.machine)}
    held = select(Lease.id).where(col(Lease.holder_id).in_(nodes))
    return nodes | set(session.exec(held).all())


def _leaving_from(region_id: str) -> SelectOfScalar[Node]:
    """Nodes that no job holds, and that none will; the machines of some of them stay."""
    has_job = (
        select(Allocation.id)
        .where(col(Allocation.node_id) == Node.id, col(Allocation.released_at).is_(None))
        .exists()
    )
    leaves = (col(Node.status) == NodeStatus.REMOVING) | (col(Node.type) == NodeType.EPHEMERAL)
    return select(Node).where(
        col(Node.region_id) == region_id, col(Node.status) != NodeStatus.ARCHIVED, leaves, ~has_job
    )


def _storage_of(session: Session, region_id: str) -> list[Node]:
    """Storage nodes whose machines are leased, oldest first."""
    query = (
        select(Node)
        .where(col(Node.region_id) == region_id, col(Node.status) != NodeStatus.ARCHIVED)
        .order_by(col(Node.id))
    )
    rows = session.exec(query).all()
    return [row for row in rows if row.machine is not None and "storage" in row.services]


@activity.defn
def find_storage(command: FindStorage) -> StorageFound:
    """The storage nodes that a region in a cloud has made for itself."""
    with database().read() as session:
        found = _storage_of(session, command.region_id)
        return StorageFound(nodes=tuple(_storage(row) for row in found))


@activity.defn
def add_storage_node(command: AddStorageNode) -> StorageNode:
    """The one that is there beside those that are to be replaced, else a new one.

    Raises: Refused, when the region is being removed.
    """
    with database().write() as session:
        region = session.get_one(Region, command.region_id, with_for_update=True)
        there = [row for row in _storage_of(session, region.id) if _stays(row, command)]
        if there:
            return _storage(there[-1])
        if region.status in (RegionStatus.REMOVING, RegionStatus.ARCHIVED):
            raise ApplicationError(f"region {region.name}: is removed", type=REFUSED)
        asked = LeasedNode(
            node_id=command.node_id,
            name=f"{region.name}-storage",
            type=NodeType.PERMANENT,
            services=("storage",),
            machine=command.machine,
        )
        node, request_id = add_leased_node(session, region, asked, command.at)
        added = _storage(node)
    hand_over_soon([request_id])
    return added


def _stays(row: Node, command: AddStorageNode) -> bool:
    return row.id not in command.replaces and row.status != NodeStatus.REMOVING


def _storage(row: Node) -> StorageNode:
    status = NodeStatus(row.status)
    return StorageNode(node_id=row.id, name=row.name, status=status, reason=row.status_reason)


@activity.defn
async def dismiss_node(command: DismissNode) -> Done:
    """Ask a node to be removed; its workflow hears the first who asks."""
    requests = await asyncio.to_thread(_ask_to_leave, command)
    hand_over_soon(requests)
    return Done()


def _ask_to_leave(command: DismissNode) -> list[str]:
    with database().write() as session:
        node = session.get(Node, command.node_id, with_for_update=True)
        if node is None or node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
            return []
        removal = Removal(force=True, requested_by=command.requested_by)
        return [ask(session, node.id, "remove", removal, command.at)]


def _leases_of(session: Session, resource_id: str) -> list[str]:
    """A provider's or region's machines that may still cost money."""
    columns = {"prv": Lease.provider_id, "reg": Lease.region_id}
    column = columns.get(prefix_of(resource_id))
    if column is None:
        return []
    ended = [status for status in LeaseStatus if status.is_final]
    query = select(Lease.id).where(col(column) == resource_id, col(Lease.status).not_in(ended))
    return sorted(session.exec(query).all())


def _users_of(session: Session, resource_id: str) -> list[str]:
    prefix = prefix_of(resource_id)
    if prefix == "prv":
        query = select(Region.id).where(
            col(Region.provider_id) == resource_id, col(Region.status) != RegionStatus.ARCHIVED
        )
        return sorted(session.exec(query).all())
    if prefix == "reg":
        query = select(Node.id).where(
            col(Node.region_id) == resource_id, col(Node.status) != NodeStatus.ARCHIVED
        )
        return sorted(session.exec(query).all())
    query = select(Allocation.job_id).where(
        col(Allocation.node_id) == resource_id, col(Allocation.released_at).is_(None)
    )
    return sorted(set(session.exec(query).all()))
