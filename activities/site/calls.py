"""One verb of a node's agent, asked for by an activity."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from temporalio import activity

from activities.site.connections import connections, endpoint, told
from workflows.contracts import errors
from workflows.contracts.node import NodeAddress

BEAT_S = 3.0


_said: ContextVar[list[str]] = ContextVar("said")
"""What the node said last of its progress, shown beside the activity in Temporal."""


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


def say(words: str) -> None:
    """A heartbeat with words for whoever looks on."""
    _said.get([])[:] = [words]
    activity.heartbeat(words)


@contextlib.asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Heartbeats every few seconds for as long as the block runs, however silent the node is."""
    said: list[str] = []
    token = _said.set(said)
    task = asyncio.create_task(_beat(said))
    try:
        yield
    finally:
        task.cancel()
        _said.reset(token)


async def _beat(said: list[str]) -> None:
    while True:
        activity.heartbeat(*said)
        await asyncio.sleep(BEAT_S)
