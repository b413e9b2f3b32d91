"""Waiting for a condition of the world, with a limit."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Found = TypeVar("Found")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.2
"""Some looks go through all processes of the machine: they become rarer."""


def wait_for(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """The first true answer of `look`. Raises: TimeoutError naming `what`."""
    for pause_s in _pauses(limit_s):
        if found := look():
            return found
        time.sleep(pause_s)
    raise TimeoutError(f"{what}: not within {limit_s} s")


async def wait_until(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """As `wait_for`, and lets the event loop go on meanwhile."""
    for pause_s in _pauses(limit_s):
        if found := look():
            return found
        await asyncio.sleep(pause_s)
    raise TimeoutError(f"{what}: not within {limit_s} s")


def _pauses(limit_s: float) -> Iterator[float]:
    deadline, pause_s = time.monotonic() + limit_s, FIRST_PAUSE_S
    while time.monotonic() <= deadline:
        yield pause_s
        pause_s = min(LONGEST_PAUSE_S, pause_s * 1.3)
