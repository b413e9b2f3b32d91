"""Heartbeats of an activity while it runs, also while it waits for a silent service."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar, copy_context

from temporalio import activity

BEAT_S = 3.0

_details: ContextVar[list[str]] = ContextVar("details")
"""The last heartbeat details, which Temporal shows beside the activity: words, and figures."""


def set_details(words: str, figures: str | None = None) -> None:
    """Send a heartbeat with these words as its details; later heartbeats repeat them.

    figures: what programs read beside the words; None: as they were, if there were any.
    """
    details = _details.get([])
    details[:] = [words, *(details[1:] if figures is None else [figures])]
    activity.heartbeat(*details)


@contextlib.asynccontextmanager
async def heartbeating(every_s: float | None = None) -> AsyncGenerator[None]:
    """Send a heartbeat every few seconds while the block runs.

    every_s: more rarely, for a long heartbeat timeout; each heartbeat is a write in Temporal.
    """
    details: list[str] = []
    token = _details.set(details)
    task = asyncio.create_task(_beat(details, every_s or BEAT_S))
    try:
        yield
    finally:
        task.cancel()
        _details.reset(token)


async def _beat(details: list[str], every_s: float) -> None:
    while True:
        activity.heartbeat(*details)
        await asyncio.sleep(every_s)


@contextlib.contextmanager
def beating_aside() -> Generator[None]:
    """Send heartbeats from a second thread while the block runs and keeps its own thread busy."""
    token = _details.set([])
    try:
        with running_aside(_beat_aside):
            yield
    finally:
        _details.reset(token)


@contextlib.contextmanager
def running_aside(work: Callable[[threading.Event], None]) -> Generator[None]:
    """Run work in a second thread, in this context, until the block has ended.

    work: gets the event of that end, at which it returns.
    """
    is_over = threading.Event()
    thread = threading.Thread(target=copy_context().run, args=(work, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _beat_aside(is_over: threading.Event) -> None:
    while activity.in_activity() and not is_over.wait(BEAT_S):
        activity.heartbeat(*_details.get([]))
