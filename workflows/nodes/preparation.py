"""Making a machine ready for jobs: runtime, folders, keys, neighbours."""

from workflows.contracts.nodes import NodeRequest, Preparation
from workflows.effects.nodes import FindPeers, PrepareNode, find_peers, prepare_node
from workflows.nodes.location import NodeLocation, refusal
from workflows.rules.nodes.onboarding import unreached_of


async def prepared(request: NodeRequest, at: NodeLocation) -> Preparation:
    """What was done there. Raises: ApplicationError, naming the neighbours that it cannot reach."""
    peers = FindPeers(node_id=request.node_id, region_id=request.region_id)
    command = PrepareNode(
        node=at.address(),
        exclusive=request.exclusive,
        peers=(await find_peers(peers)).peers,
        serves_cache=request.machine is not None and "storage" in request.services,
    )
    preparation = (await prepare_node(command)).preparation
    if unreached := unreached_of(preparation, request.relaxed):
        raise refusal(request, unreached)
    return preparation
