"""Dependents of resources: finding them, and asking for their removal."""

import asyncio

from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.artifacts.uses import jobs_using
from activities.db.session import database
from activities.db.tables import (
    Allocation,
    Datastore,
    Device,
    Job,
    JobDatastore,
    Lease,
    Node,
    Region,
)
from activities.devices.revisions import configurations_using
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.nodes.ephemeral import stays
from activities.placement.allocation_states import is_of_job
from activities.regions.storage_nodes import storage_nodes_of
from activities.temporal.client import tell
from workflows.contracts.base import Done
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.lifecycles import (
    ARTIFACT_NOUNS,
    DATASTORE,
    JOB,
    LEASE,
    NODE,
    PROVIDER,
    REGION,
    noun_of,
    workflow_id_of,
)
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType, RegionStatus
from workflows.effects.lifecycles import DependentsFound, FindDependents, RemoveDependents
from workflows.rules.catalogue.providers import rented_kinds


@activity.defn
def find_dependents(command: FindDependents) -> DependentsFound:
    """What uses a resource and has not ended: regions, nodes, devices, jobs, leases, and the device
    configurations that use an artifact or a datastore."""
    with database().read() as session:
        found = dependents_of(session, command.resource_id)
        own = own_dependents_of(session, command.resource_id)
        table = KIND_BY_NOUN[noun_of(command.resource_id).name].table
        row = session.get(table, command.resource_id)
        sequence = 0 if row is None else row.sequence
    own_ids = tuple(one for one in found if one in own)
    return DependentsFound(ids=tuple(found), own_ids=own_ids, sequence=sequence)


@activity.defn
async def remove_dependents(command: RemoveDependents) -> Done:
    """Send `remove` to all dependents that have not ended; jobs of removed nodes are rescheduled.

    A dependent that cannot be signalled now is signalled at the caller's next try. Leases are
    signalled only when no other dependent is left, because a node releases its own lease once
    nothing runs on its machine.

    If the resource's row is ahead of the command, none is signalled: a newer workflow run owns the
    resource, and may have given the removal up.
    """
    found = await asyncio.to_thread(
        find_dependents, FindDependents(resource_id=command.resource_id)
    )
    if 0 < command.sequence < found.sequence:
        return Done()
    removal = command.removal.model_copy(update={"reschedules": True})
    users = [one for one in found.ids if noun_of(one) is not LEASE]
    for resource_id in users or found.ids:
        try:
            await tell(workflow_id_of(resource_id), "remove", removal)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("%s could not be asked for its removal: %s", resource_id, cause)
    return Done()


def dependents_of(session: Session, resource_id: str) -> list[str]:
    """The ids of a resource's dependents, oldest first; leases come after all others."""
    return [*_users_of(session, resource_id), *_leases_of(session, resource_id)]


def own_dependents_of(session: Session, resource_id: str) -> set[str]:
    """The dependents that do not prevent a person from removing a region or a provider.

    Of a provider, it is its implied region. Of a region, these are the storage nodes of a cloud
    region, nodes that are being removed, ephemeral nodes that no job uses any more, the leases of
    all these, and devices that are being removed.
    """
    if noun_of(resource_id) is PROVIDER:
        implied = select(Region.id).where(
            col(Region.provider_id) == resource_id, col(Region.provider_kind).in_(rented_kinds())
        )
        return set(session.exec(implied).all())
    if noun_of(resource_id) is not REGION:
        return set()
    nodes = {node.id for node in storage_nodes_of(session, resource_id)}
    leaving = session.exec(_leaving_from(resource_id)).all()
    nodes |= {node.id for node in leaving if not stays(node.machine)}
    held = select(Lease.id).where(col(Lease.holder_id).in_(nodes))
    devices = select(Device.id).where(
        col(Device.region_id) == resource_id, col(Device.status) == DeviceStatus.REMOVING
    )
    return nodes | set(session.exec(held).all()) | set(session.exec(devices).all())


def _leaving_from(region_id: str) -> SelectOfScalar[Node]:
    """Nodes without jobs that get no new ones; some of them are retained nodes."""
    has_job = select(Allocation.id).where(col(Allocation.node_id) == Node.id, is_of_job()).exists()
    leaves = (col(Node.status) == NodeStatus.REMOVING) | (col(Node.type) == NodeType.EPHEMERAL)
    return select(Node).where(
        col(Node.region_id) == region_id, col(Node.status) != NodeStatus.ARCHIVED, leaves, ~has_job
    )


def _leases_of(session: Session, resource_id: str) -> list[str]:
    """The open leases of a provider or region, whose machines may still cost money."""
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
        held = select(Datastore.id).where(
            col(Datastore.region_id) == resource_id,
            col(Datastore.status) != DatastoreStatus.ARCHIVED,
        )
        devices = select(Device.id).where(
            col(Device.region_id) == resource_id, col(Device.status) != DeviceStatus.ARCHIVED
        )
        return [each for ids in (query, held, devices) for each in sorted(session.exec(ids).all())]
    if noun is DATASTORE:
        ended = sorted(JOB.final_statuses)
        query = (
            select(JobDatastore.job_id)
            .join(Job, col(Job.id) == JobDatastore.job_id)
            .where(col(JobDatastore.datastore_id) == resource_id, col(Job.status).not_in(ended))
        )
        return [*sorted(session.exec(query).all()), *_configurations(session, resource_id)]
    if noun in ARTIFACT_NOUNS:
        return [*jobs_using(session, resource_id), *_configurations(session, resource_id)]
    if noun is not NODE:
        return []
    query = select(Allocation.job_id).where(col(Allocation.node_id) == resource_id, is_of_job())
    return sorted(set(session.exec(query).all()))


def _configurations(session: Session, resource_id: str) -> list[str]:
    """The device configurations that use an artifact or a datastore."""
    return sorted(row.id for row in configurations_using(session, resource_id))
