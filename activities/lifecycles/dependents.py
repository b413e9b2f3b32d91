"""Dependents of a provider, a region or a node: what still uses it, and asking that to end."""

import asyncio

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Lease, Node, Region
from activities.nodes.ephemeral import stays
from activities.regions.storage_nodes import storage_nodes_of
from activities.temporal.client import tell
from workflows.contracts.base import Done
from workflows.contracts.lifecycles import LEASE, PROVIDER, REGION, noun_of, workflow_id_of
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType, RegionStatus
from workflows.effects.lifecycles import DependentsFound, FindDependents, RemoveDependents


@activity.defn
def find_dependents(command: FindDependents) -> DependentsFound:
    """A provider's regions, a region's nodes, a node's jobs, and leases: what has not ended."""
    with database().read() as session:
        found = dependents_of(session, command.resource_id)
        own = own_dependents_of(session, command.resource_id)
    return DependentsFound(ids=tuple(found), own_ids=tuple(one for one in found if one in own))


@activity.defn
async def remove_dependents(command: RemoveDependents) -> Done:
    """Send `remove` to all of them; one that has ended needs no telling.

    One that cannot be told now is told with the next look at what is left. A machine is given back
    by who has it, once nothing runs on it: leases are told when nobody else is left.
    """
    found = await asyncio.to_thread(
        find_dependents, FindDependents(resource_id=command.resource_id)
    )
    users = [one for one in found.ids if noun_of(one) is not LEASE]
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
    if noun_of(resource_id) is not REGION:
        return set()
    nodes = {node.id for node in storage_nodes_of(session, resource_id)}
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


def _leases_of(session: Session, resource_id: str) -> list[str]:
    """A provider's or region's machines that may still cost money."""
    columns = {PROVIDER: Lease.provider_id, REGION: Lease.region_id}
    column = columns.get(noun_of(resource_id))
    if column is None:
        return []
    ended = [status for status in LeaseStatus if status.is_final]
    query = select(Lease.id).where(col(column) == resource_id, col(Lease.status).not_in(ended))
    return sorted(session.exec(query).all())


def _users_of(session: Session, resource_id: str) -> list[str]:
    noun = noun_of(resource_id)
    if noun is PROVIDER:
        query = select(Region.id).where(
            col(Region.provider_id) == resource_id, col(Region.status) != RegionStatus.ARCHIVED
        )
        return sorted(session.exec(query).all())
    if noun is REGION:
        query = select(Node.id).where(
            col(Node.region_id) == resource_id, col(Node.status) != NodeStatus.ARCHIVED
        )
        return sorted(session.exec(query).all())
    query = select(Allocation.job_id).where(
        col(Allocation.node_id) == resource_id, col(Allocation.released_at).is_(None)
    )
    return sorted(set(session.exec(query).all()))
