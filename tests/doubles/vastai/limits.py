"""Vast.ai's limits: the least time between two calls of an identity, and searches of a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.doubles.http_double import Answer
from tests.doubles.rented.door import RefusedError
from tests.doubles.vastai.errors import TEXT, TOO_FREQUENT, refused

INTERVALS = {
    "asks.accept": 4.5,
    "instances.list": 2.0,
    "instances.get": 2.0,
    "instances.destroy": 3.0,
    "instances.manage": 1.0,
    "keys.create": 1.0,
}
PENALTIES = {"asks.accept": 12.0}
"""How long a call waits that came too early."""
DAY_S = 86400


@dataclass
class Limits:
    """intervals: in the cloud's seconds by call; searches: of a day that begins at midnight UTC."""

    now: Callable[[], float]
    intervals: Mapping[str, float] = field(default_factory=lambda: dict(INTERVALS))
    penalties: Mapping[str, float] = field(default_factory=lambda: dict(PENALTIES))
    searches: int = 5000
    _free_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _searched: Counter[tuple[str, int]] = field(default_factory=Counter)

    def take(self, call: str, identity: str) -> None:
        """Raises: RefusedError when the call comes too early, or is a search too many."""
        now, interval = self.now(), self.intervals.get(call)
        if interval is not None:
            if now < self._free_at.get((call, identity), 0.0) - 1e-6:
                penalty = self.penalties.get(call)
                if penalty is not None:
                    self._free_at[call, identity] = now + penalty
                raise RefusedError(_too_frequent(interval))
            self._free_at[call, identity] = now + interval
        if call.startswith("asks.search"):
            self._search(identity)

    def _search(self, identity: str) -> None:
        today = int(self.now() // DAY_S)
        if self._searched[identity, today] >= self.searches:
            raise refused(429, "search_quota_exceeded", "Daily search quota exceeded.")
        self._searched[identity, today] += 1


def _too_frequent(interval: float) -> Answer:
    return Answer(429, f"{TOO_FREQUENT}: endpoint threshold={interval}".encode(), TEXT)
