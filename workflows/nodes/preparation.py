"""The preparation of a node: runtime, folders, keys, peers."""

from workflows.contracts.nodes import NodeRequest, Preparation
from workflows.effects.nodes import FindPeers, PrepareNode, find_peers, prepare_node
from workflows.nodes.location import NodeLocation, refusal
from workflows.rules.nodes.onboarding import unreached_of


async def prepared(request: NodeRequest, location: NodeLocation) -> Preparation:
    """Prepare the node's machine, and return the preparation.

    Raises: ApplicationError, naming the peers that the node cannot reach; ActivityError, when the
    preparation fails.
    """
    peers = FindPeers(node_id=request.node_id, region_id=request.region_id)
    command = PrepareNode(
        node=location.address(),
        exclusive=request.exclusive,
        peers=(await find_peers(peers)).peers,
        serves_cache="storage" in request.services,
    )
    preparation = (await prepare_node(command)).preparation
    if unreached := unreached_of(preparation, request.relaxed):
        raise refusal(request, unreached)
    return preparation
