"""Addresses of nodes: from their rows, as their machines announced them, and of their peers."""

from sqlmodel import col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Device, Node, Region
from activities.nodes.join_tokens import announced
from workflows.contracts.hosts import Announcement
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    AnnouncementFound,
    FindAnnouncement,
    FindPeers,
    PeersFound,
)
from workflows.rules.catalogue.providers import kinds_of_strangers, traits_of
from workflows.rules.nodes.requirements import private_address

SSH_PORT = 22
_ONBOARD = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE)


def address_of(node: Node | Device, region: Region) -> NodeAddress:
    """The address and user by which the platform reaches a node or a device.

    Raises: ValueError, when the row has no address.
    """
    if node.host is None:
        raise ValueError(f"{node.id}: has no address")
    machine = node.machine if isinstance(node, Node) else None
    return NodeAddress(
        node_id=node.id,
        region_id=node.region_id,
        host=node.host,
        port=node.port,
        user=node.user,
        minion_id=node.minion_id,
        root=region.node_root,
        own_worker=region.own_worker,
        leased=machine is not None,
        has_own_key=machine is not None and machine.get("spec", {}).get("has_own_key", False),
        is_stated=machine is not None and traits_of(region.provider_kind).states_addresses,
    )


def inside_address(node: Node, address: NodeAddress) -> NodeAddress:
    """The node's address as its peers use it; its own port may differ from a forwarded one."""
    if private_address((address.host,)) is not None:
        return address
    found = private_address((node.hardware or {}).get("addresses", ()))
    if found is None:
        return address
    return address.model_copy(update={"host": found, "port": SSH_PORT})


@activity.defn
def find_announcement(command: FindAnnouncement) -> AnnouncementFound:
    """The last announcement of this machine with a join token of the region."""
    with database().read() as session:
        row = announced(session, command.region_id, command.minion_id)
    if row is None or row.host is None:
        return AnnouncementFound()
    announcement = Announcement(
        minion_id=command.minion_id, host=row.host, port=row.port, user=row.user, at=row.last_at
    )
    return AnnouncementFound(announcement=announcement)


@activity.defn
def find_peers(command: FindPeers) -> PeersFound:
    """The peers of a new node: the region's other nodes that are in use and have an address.

    Each at its private address: where the platform reaches it at a public one, at the first that
    its inspection found. Machines of strangers are no peers, and none learns where another is.
    """
    query = (
        select(Node, Region)
        .join(Region, col(Region.id) == Node.region_id)
        .where(
            col(Node.region_id) == command.region_id,
            col(Node.id) != command.node_id,
            col(Node.status).in_(_ONBOARD),
            col(Node.host).is_not(None),
            col(Region.provider_kind).not_in(kinds_of_strangers()),
        )
        .order_by(col(Node.id))
    )
    with database().read() as session:
        rows = session.exec(query).all()
    return PeersFound(
        peers=tuple(inside_address(node, address_of(node, region)) for node, region in rows)
    )
