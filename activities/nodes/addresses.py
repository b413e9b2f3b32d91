"""Addresses of nodes, from their rows."""

from activities.db.tables import Node, Region
from workflows.contracts.nodes import NodeAddress


def address_of(node: Node, region: Region) -> NodeAddress:
    """The address and user by which the platform reaches a node.

    Raises: ValueError, when the row has no address.
    """
    if node.host is None:
        raise ValueError(f"node {node.id}: has no address")
    return NodeAddress(
        node_id=node.id,
        region_id=node.region_id,
        host=node.host,
        port=node.port,
        user=node.user,
        minion_id=node.minion_id,
        root=region.node_root,
    )
