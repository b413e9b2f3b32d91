"""Waiting for a condition of the world, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """The first true answer of `look`, asked every 10 ms, then ever more rarely up to 250 ms.

    More often, what waits takes a tenth of the machine that it waits for.

    Raises: TimeoutError naming `what` when `limit_s` seconds have passed.
    """
    deadline = time.monotonic() + limit_s
    pause_s = 0.01
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {limit_s} s")
        time.sleep(pause_s)
        pause_s = min(0.25, pause_s * 1.3)
