"""The address of a node, from its row."""

from activities.db.tables import Node, Region
from workflows.contracts.nodes import NodeAddress


def address_of(node: Node, region: Region) -> NodeAddress:
    """Where a node is reached, and as whom. Raises: ValueError, where no address is known."""
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
