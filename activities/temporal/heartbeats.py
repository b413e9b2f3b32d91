"""Heartbeats of an activity, for as long as it is at work, however silent the other side is."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar, copy_context

from temporalio import activity

BEAT_S = 3.0

_said: ContextVar[list[str]] = ContextVar("said")
"""What was said last of its progress, shown beside the activity in Temporal."""


def set_details(words: str) -> None:
    """A heartbeat with words for whoever looks on."""
    _said.get([])[:] = [words]
    activity.heartbeat(words)


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncGenerator[None]:
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


@contextlib.contextmanager
def beating_aside() -> Generator[None]:
    """As `heartbeating`, for an activity that keeps its thread busy."""
    is_over = threading.Event()
    beat = threading.Thread(target=copy_context().run, args=(_beat_aside, is_over), daemon=True)
    beat.start()
    try:
        yield
    finally:
        is_over.set()
        beat.join()


def _beat_aside(is_over: threading.Event) -> None:
    while activity.in_activity() and not is_over.wait(BEAT_S):
        activity.heartbeat()
