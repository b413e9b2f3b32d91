"""What providers and regions ask of the rows: who still uses them."""

import asyncio

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Lease, Node, Region
from activities.lifecycle_requests import prefix_of, workflow_id_of
from activities.temporal import tell
from workflows.contracts.base import Done
from workflows.contracts.states import LeaseStatus, NodeStatus, RegionStatus
from workflows.effects.region import DependentsFound, FindDependents, TellDependents


@activity.defn
def find_dependents(command: FindDependents) -> DependentsFound:
    """A provider's regions, a region's nodes, a node's jobs, and leases: what has not ended."""
    with database().read() as session:
        return DependentsFound(ids=tuple(dependents_of(session, command.resource_id)))


@activity.defn
async def tell_dependents(command: TellDependents) -> Done:
    """Send `remove` to all of them; one that has ended needs no telling.

    One that cannot be told now is told with the next look at what is left.
    """
    found = await asyncio.to_thread(
        find_dependents, FindDependents(resource_id=command.resource_id)
    )
    for resource_id in found.ids:
        try:
            await tell(workflow_id_of(resource_id), "remove", command.removal)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("%s was not told to end: %s", resource_id, cause)
    return Done()


def dependents_of(session: Session, resource_id: str) -> list[str]:
    """The ids of what still uses a resource, oldest first: its leases after what they are for."""
    return [*_users_of(session, resource_id), *_leases_of(session, resource_id)]


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
