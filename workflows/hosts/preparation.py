"""The preparation of a host: runtime, folders, keys, peers."""

from workflows.contracts.hosts import HostRequest
from workflows.contracts.nodes import Preparation
from workflows.effects.nodes import FindPeers, PrepareNode, find_peers, prepare_node
from workflows.hosts.location import HostLocation, refusal
from workflows.rules.nodes.onboarding import unreached_of


async def prepared(
    request: HostRequest, location: HostLocation, *, serves_cache: bool = False
) -> Preparation:
    """Prepare the host's machine, and return the preparation.

    serves_cache: whether the host serves the region cache.

    Raises: ApplicationError, naming the peers that the host cannot reach; ActivityError, when the
    preparation fails.
    """
    peers = FindPeers(node_id=request.host_id, region_id=request.region_id)
    command = PrepareNode(
        node=location.address(),
        exclusive=request.exclusive,
        peers=(await find_peers(peers)).peers,
        serves_cache=serves_cache,
    )
    preparation = (await prepare_node(command)).preparation
    if unreached := unreached_of(preparation, request.relaxed):
        raise refusal(request, unreached)
    return preparation
