"""Heartbeats of an activity, for as long as it is at work, however silent the other side is."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextvars import ContextVar

from temporalio import activity

BEAT_S = 3.0

_said: ContextVar[list[str]] = ContextVar("said")
"""What was said last of its progress, shown beside the activity in Temporal."""


def say(words: str) -> None:
    """A heartbeat with words for whoever looks on."""
    _said.get([])[:] = [words]
    activity.heartbeat(words)


@contextlib.asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Heartbeats every few seconds for as long as the block runs."""
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
