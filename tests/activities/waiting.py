"""Waiting for a condition of the world, with a limit."""

import asyncio
from collections.abc import Callable

from tests.lab.waiting import Found, pauses
from tests.lab.waiting import wait_until as wait_for

__all__ = ["wait_for", "wait_until"]


async def wait_until(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """As `wait_for`, and lets the event loop go on meanwhile."""
    for pause_s in pauses(limit_s):
        if found := look():
            return found
        await asyncio.sleep(pause_s)
    raise TimeoutError(f"{what}: not within {limit_s} s")
