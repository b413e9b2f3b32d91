"""Waiting for a condition of the world, with a limit."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PAUSE_S = 0.02


def wait_for(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """The first true answer of `look`. Raises: TimeoutError naming `what`."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s} s")
        time.sleep(PAUSE_S)
    return found


async def wait_until(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """As `wait_for`, and lets the event loop go on meanwhile."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s} s")
        await asyncio.sleep(PAUSE_S)
    return found
