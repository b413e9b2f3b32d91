"""The limit on how often one peer, an address or an API key, may call: counted in this process."""

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_PEERS = 10_000


def peer_of(address: str | None) -> str:
    """The peer behind an address: the address itself, of IPv6 its network of /64.

    Whoever has one address of IPv6 has all 2^64 of that network.
    """
    if address is None:
        return "unknown"
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class Rate:
    """A rate limit of `per_minute` calls a minute for each peer, which may come all at once.

    Only the latest `MAX_PEERS` peers are remembered.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._peers: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, peer: str, per_minute: int | None = None) -> float:
        """Seconds until the peer may call; 0 if the peer may call now, which counts as a call.

        per_minute: the peer's own rate limit; None: that of all peers.
        """
        with self._lock:
            return self._wait_s(peer, per_minute or self._per_minute, self._clock())

    def _wait_s(self, peer: str, per_minute: int, now: float) -> float:
        left, at = self._peers.pop(peer, (float(per_minute), now))
        left = min(per_minute, left + (now - at) * per_minute / 60)
        allowed = left >= 1
        self._peers[peer] = (left - 1 if allowed else left, now)
        while len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / per_minute
