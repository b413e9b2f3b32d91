"""Waiting for a condition, with a limit: what tests do instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

LIMIT_S = 60.0
INTERVAL_S = 0.02


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], what: str, limit_s: float = LIMIT_S
) -> None:
    """Until the condition holds. Raises: AssertionError, naming `what`, after the limit."""
    deadline = time.monotonic() + limit_s
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(INTERVAL_S)
