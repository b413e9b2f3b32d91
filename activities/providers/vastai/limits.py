"""The pauses between the calls of one key, which Vast.ai wants and does not announce.

Vast.ai answers a call that comes too early with 429, without saying when to come again, and lets
the caller wait longer for it. So each process keeps the pauses by itself. Two processes with one
key may meet; the one that is refused comes again later.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from activities.providers.base import Unavailable

PAUSES_S = {"search": 2.0, "create": 4.5, "list": 2.0, "show": 2.0, "destroy": 3.0, "user": 1.0}
"""By kind of call: from Vast.ai's documentation of 2026-08-07, ours where it states none."""
PENALTIES_S = {"create": 12.0}
"""How long a call that came too early holds up the next one of its kind."""
LONGEST_WAIT_S = 15.0
"""How long a call waits here for its turn; for more, its activity comes again later."""
KEPT_LIMITERS = 64


@dataclass
class Limiter:
    """The pauses of one key. Thread-safe."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_at: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self, call: str) -> None:
        """Wait for the turn of a call. Raises: Unavailable, when its turn is too far away."""
        with self._lock:
            now = self.now()
            turn = max(now, self._free_at.get(call, now))
            if turn - now > LONGEST_WAIT_S:
                raise Unavailable(
                    f"Vast.ai {call}: {turn - now:.0f} s until the next call may be made",
                    retry_after_s=turn - now,
                )
            self._free_at[call] = turn + PAUSES_S[call]
        if turn > now:
            self.sleep(turn - now)

    def too_early(self, call: str) -> float:
        """Note that Vast.ai refused a call as one too many, and return the seconds to wait."""
        pause = PENALTIES_S.get(call, PAUSES_S[call])
        with self._lock:
            self._free_at[call] = max(self._free_at.get(call, 0.0), self.now() + pause)
        return pause


@lru_cache(maxsize=KEPT_LIMITERS)
def limiter_of(endpoint: str, key: str) -> Limiter:  # noqa: ARG001 - they are what it is kept by
    """The limiter of a key, the same for all threads of this process."""
    return Limiter()
