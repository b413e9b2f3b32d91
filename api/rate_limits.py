"""A limit on how often one peer may do something, kept in this process."""

import time
from collections import OrderedDict
from collections.abc import Callable

MAX_PEERS = 10_000


class Rate:
    """At most `per_minute` calls a minute and peer, all of them at once if it likes."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._peers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, peer: str) -> float:
        """0 when the peer may go on, which counts as a call; else seconds until it may."""
        now = self._clock()
        left, at = self._peers.pop(peer, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - at) * self._per_minute / 60)
        allowed = left >= 1
        self._peers[peer] = (left - 1 if allowed else left, now)
        while len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / self._per_minute
