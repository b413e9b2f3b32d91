"""One verb of a node's agent, asked for by an activity."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from temporalio import activity

from activities.site.connections import connections, endpoint, told
from workflows.contracts.node import NodeAddress

BEAT_S = 3.0


async def ask(
    node: NodeAddress, verb: str, request: dict[str, Any], *, limit_s: float
) -> dict[str, Any]:
    """The agent's answer.

    limit_s: below the activity's own limit, so that it is this that says what happened.
    Raises: ApplicationError, see `connections.told`.
    """
    with told(node):
        return await connections().call(
            endpoint(node), verb, request, limit_s=limit_s, on_progress=activity.heartbeat
        )


@contextlib.asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Heartbeats every few seconds for as long as the block runs, however silent the node is."""
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(BEAT_S)
