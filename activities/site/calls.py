"""One verb of a node's agent, asked for by an activity."""

from typing import Any

from activities.heartbeats import say
from activities.site.connections import connections, endpoint, told
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress


async def ask(
    node: NodeAddress,
    verb: str,
    request: dict[str, Any],
    *,
    limit_s: float,
    broken: str = errors.OUTCOME_UNKNOWN,
) -> dict[str, Any]:
    """The agent's answer.

    limit_s: below the activity's own limit, so that it is this that says what happened.
    broken: what an agent without an answer means.
    Raises: ApplicationError, see `connections.told`.
    """
    with told(node, broken=broken):
        return await connections().call(
            endpoint(node), verb, request, limit_s=limit_s, on_progress=say
        )
