"""RunPod's limits: so many calls of a key in each window, and what the heads say of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.doubles.http_double import Answer
from tests.doubles.rented.door import RefusedError
from tests.doubles.runpod.errors import problem

WINDOWS = {"minute": 60, "hour": 3600, "day": 86400}


@dataclass
class Limits:
    """quotas: calls by window; a window without one is without a limit."""

    now: Callable[[], float]
    quotas: dict[str, int] = field(
        default_factory=lambda: {"minute": 60, "hour": 3000, "day": 50000}
    )
    _used: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def take(self, key: str) -> None:
        """Count a call. Raises: RefusedError when a window is full, and counts nothing."""
        for window in self.quotas:
            if self.left(key, window) <= 0:
                wait = str(self.resets_in(window))
                detail = f"rate limit exceeded for the {window} window"
                raise RefusedError(problem(429, detail, head={"Retry-After": wait}))
        for window in self.quotas:
            self._used[key, window, self._number(window)] += 1

    def left(self, key: str, window: str) -> int:
        return self.quotas[window] - self._used[key, window, self._number(window)]

    def resets_in(self, window: str) -> int:
        length = WINDOWS[window]
        return math.ceil(length - self.now() % length)

    def dressed(self, answer: Answer, key: str) -> Answer:
        """The answer with what is left of each window."""
        if not self.quotas:
            return answer
        states = [
            f'"{window}";r={self.left(key, window)};t={self.resets_in(window)}'
            for window in self.quotas
        ]
        policies = [
            f'"{window}";q={quota};w={WINDOWS[window]}' for window, quota in self.quotas.items()
        ]
        heads = {"RateLimit": ", ".join(states), "RateLimit-Policy": ", ".join(policies)}
        return Answer(answer.status, answer.body, {**(answer.headers or {}), **heads})

    def _number(self, window: str) -> int:
        return int(self.now() // WINDOWS[window])
