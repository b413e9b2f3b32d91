"""The double's time: what it tells, how fast its own operations go, and what it does later."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime


class Clock:
    """Wall time. Timestamps and the meter follow it; durations of the cloud's own are compressed.

    time_scale: how many times faster the cloud's own operations, boots and deliveries go; what a
    request asks for in seconds (`maxRunDuration`, an ack deadline) is never compressed.
    skew_s: how far ahead of us the cloud's clock is: in timestamps and in judging tokens.
    """

    def __init__(self, time_scale: float = 1.0) -> None:
        self.time_scale = time_scale
        self.skew_s = 0.0

    def now(self) -> float:
        """Seconds of the epoch by the cloud's clock."""
        return time.time() + self.skew_s

    def real_s(self, cloud_s: float) -> float:
        """How long we wait for what takes the cloud so long."""
        return cloud_s / self.time_scale


def rfc3339(at: float) -> str:
    """As the one-platform APIs and the logs write an instant."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def compute_time(at: float) -> str:
    """As Compute Engine writes an instant."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


class Timers:
    """Things to do later, one after the other on one thread, under the cloud's lock."""

    def __init__(self, lock: threading.RLock, on_error: Callable[[BaseException], None]) -> None:
        self._lock = lock
        self._on_error = on_error
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="gcp-double-timers", daemon=True)
        self._thread.start()

    def after(self, real_s: float, action: Callable[[], object]) -> None:
        """Do `action` in so many real seconds; what a closed cloud would have done is dropped."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + real_s, next(self._order), action))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while (action := self._next()) is not None:
            with self._lock:
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - told to the test, which fails
                    self._on_error(error)

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            while not self._closed:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(left)
            return None
