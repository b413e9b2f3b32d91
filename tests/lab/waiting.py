"""Waiting for a condition of the world, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], what: str, limit_s: float = 60.0) -> Found:
    """The first true answer of `look`.

    Raises: TimeoutError naming `what` when `limit_s` seconds have passed.
    """
    for pause_s in pauses(limit_s):
        if found := look():
            return found
        time.sleep(pause_s)
    raise TimeoutError(f"{what}: not within {limit_s} s")


def pauses(limit_s: float) -> Iterator[float]:
    """Seconds after each look: 10 ms, then ever more up to 250 ms; the last look is past the limit.

    With shorter ones, what waits takes a tenth of the machine that it waits for.
    """
    deadline, pause_s, is_late = time.monotonic() + limit_s, 0.01, False
    while not is_late:
        is_late = time.monotonic() >= deadline
        yield pause_s
        pause_s = min(0.25, pause_s * 1.3)
