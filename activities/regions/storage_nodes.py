"""Storage nodes of regions: found, replaced and removed; in clouds also claimed and added."""

import asyncio

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import Node, Region
from activities.nodes.addresses import address_of
from activities.nodes.creation import LeasedNode, add_leased_node
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import enqueue
from activities.providers.base import RequestRefused
from activities.providers.prices import priced_catalogue
from activities.providers.registry import kind_of
from activities.regions.cache import cache_address_of, serves
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.machines import MachineClaim
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType, ProviderKind, RegionStatus
from workflows.effects.regions import (
    AddStorageNode,
    FindStorage,
    FindStorageClaim,
    FindStorageFill,
    RequestNodeRemoval,
    StorageFill,
    StorageFound,
    StorageNode,
)
from workflows.rules.catalogue.permanent_machines import lasting_spec, storage_offers
from workflows.rules.nodes.requirements import STORAGE

_GONE = (NodeStatus.REMOVING, NodeStatus.ARCHIVED)


def storage_nodes_of(session: Session, region_id: str) -> list[Node]:
    """The storage nodes of a region whose machines are leased, oldest first."""
    query = (
        select(Node)
        .where(col(Node.region_id) == region_id, col(Node.status) != NodeStatus.ARCHIVED)
        .order_by(col(Node.id))
    )
    rows = session.exec(query).all()
    return [row for row in rows if row.machine is not None and "storage" in row.services]


@activity.defn
def find_storage(command: FindStorage) -> StorageFound:
    """The storage nodes that a cloud region has created for itself."""
    with database().read() as session:
        found = storage_nodes_of(session, command.region_id)
        return StorageFound(nodes=tuple(_storage(row) for row in found))


@activity.defn
def find_storage_claim(command: FindStorageClaim) -> MachineClaim:
    """The claim of a storage node's machine: the region's storage class, in each of its zones.

    The prices are those known now.
    Raises: Refused, when the catalogue has no such storage class, or no price of it in the region.
    """
    with database().read() as session:
        region = session.get_one(Region, command.region_id)
    kind = kind_of(region.provider_kind)
    try:
        classes = kind.required("storage_classes", kind.storage_classes)()
        catalogue = priced_catalogue(region.provider_kind)
    except RequestRefused as refusal:
        raise ApplicationError(f"region {region.name}: {refusal}", type=REFUSED) from refusal
    cloud_region, wanted = region.cloud_region or "", region.storage_node_class or ""
    found = classes.named(wanted)
    if found is None:
        message = f"region {region.name}: {region.provider_kind} has no storage class {wanted!r}"
        raise ApplicationError(message, type=REFUSED)
    offers = storage_offers(catalogue, found, cloud_region)
    if not offers:
        message = f"region {region.name}: no price of storage class {wanted} in {cloud_region!r}"
        raise ApplicationError(message, type=REFUSED)
    return MachineClaim(
        provider_id=region.provider_id,
        provider_kind=ProviderKind(region.provider_kind),
        offers=offers,
        spec=lasting_spec(
            region.provider_kind,
            found.disk_size_gb,
            {"region": region.id, "service": "storage"},
        ),
    )


@activity.defn
def add_storage_node(command: AddStorageNode) -> StorageNode:
    """The region's storage node that is not to be replaced, else a new one.

    Raises: Refused, when the region is being removed.
    """
    with database().write() as session:
        region = session.get_one(Region, command.region_id, with_for_update=True)
        existing = [row for row in storage_nodes_of(session, region.id) if _stays(row, command)]
        if existing:
            return _storage(existing[-1])
        if region.status in (RegionStatus.REMOVING, RegionStatus.ARCHIVED):
            raise ApplicationError(f"region {region.name}: is being removed", type=REFUSED)
        wanted = LeasedNode(
            node_id=command.node_id,
            name=f"{region.name}-storage",
            type=NodeType.PERMANENT,
            services=("storage",),
            machine=command.machine,
            fills_from=_replaced(session, command),
        )
        node, request_id = add_leased_node(session, region, wanted, command.at)
        added = _storage(node)
    relay_soon([request_id])
    return added


def _replaced(session: Session, command: AddStorageNode) -> str | None:
    """The storage node that the new one is filled from: the one in use, else the newest."""
    rows = [row for row in storage_nodes_of(session, command.region_id) if not _stays(row, command)]
    in_use = [row for row in rows if row.status == NodeStatus.ACTIVE] or rows
    return in_use[-1].id if in_use else None


def _stays(row: Node, command: AddStorageNode) -> bool:
    return row.id not in command.replaces and row.status != NodeStatus.REMOVING


def _storage(row: Node) -> StorageNode:
    status = NodeStatus(row.status)
    return StorageNode(node_id=row.id, name=row.name, status=status, reason=row.status_reason)


@activity.defn
def find_storage_fill(command: FindStorageFill) -> StorageFill:
    """The replacement of the region's storage node that is under way, read from the rows."""
    query = (
        select(Node)
        .where(col(Node.region_id) == command.region_id, col(Node.status).not_in(_GONE))
        .order_by(col(Node.id))
    )
    with database().read() as session:
        nodes = {row.id: row for row in session.exec(query) if STORAGE in row.services}
        new = next((row for row in reversed(nodes.values()) if row.fills_from in nodes), None)
        if new is None:
            return StorageFill()
        region, older = session.get_one(Region, command.region_id), nodes[new.fills_from or ""]
        # In maintenance it takes no jobs, and its cache answers as before.
        is_source = older.status in (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE) and serves(older)
        return StorageFill(
            node_id=new.id,
            name=new.name,
            status=NodeStatus(new.status),
            older=tuple(each for each in nodes if each != new.id),
            node=address_of(new, region) if serves(new) else None,
            source=cache_address_of(older) if is_source else None,
        )


@activity.defn
async def request_node_removal(command: RequestNodeRemoval) -> Done:
    """Request the removal of a node; a repeated request changes nothing."""
    requests = await asyncio.to_thread(_enqueue_removal, command)
    relay_soon(requests)
    return Done()


def _enqueue_removal(command: RequestNodeRemoval) -> list[str]:
    with database().write() as session:
        node = session.get(Node, command.node_id, with_for_update=True)
        if node is None or node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
            return []
        removal = Removal(force=True, requested_by=command.requested_by, reschedules=True)
        return [enqueue(session, node.id, "remove", removal, command.at)]
