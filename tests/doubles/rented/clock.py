"""The time of a cloud that rents machines: it stands still until a test moves it, or flows."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

STARTS_AT = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
"""Where a clock that stands still begins."""
TICK_S = 0.01


class Clock:
    """Seconds of the epoch as the cloud counts them, and what the cloud does later.

    rate: seconds of the cloud in one of ours; 0: only `advance` moves it. What is due is done in
    its order, under the lock, at the very instant it was due.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self.lock = threading.RLock()
        self.moved = threading.Condition(self.lock)
        self.rate = rate
        self._then = STARTS_AT if not rate else time.time()
        self._real = time.monotonic()
        self._at: float | None = None
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._closed = threading.Event()
        if rate:
            self._thread = threading.Thread(target=self._flow, daemon=True)
            self._thread.start()

    def now(self) -> float:
        """The instant; while something that was due is done, the instant at which it was due."""
        with self.lock:
            return self._at if self._at is not None else self._passed()

    def advance(self, seconds: float) -> None:
        """Move on, and do everything that falls due on the way."""
        with self.lock:
            self._then += seconds
            self._settle()

    def at(self, instant: float, action: Callable[[], object]) -> None:
        """Do `action` at that instant."""
        with self.lock:
            heapq.heappush(self._waiting, (instant, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do `action` so many seconds from now; at once where there are none to wait."""
        if seconds <= 0:
            action()
        else:
            self.at(self.now() + seconds, action)

    def wait_until(self, instant: float, is_over: Callable[[], bool]) -> None:
        """Hold the calling thread until the instant, until that is so, or until the end."""
        with self.lock:
            while self._passed() < instant and not is_over() and not self._closed.is_set():
                self.moved.wait(TICK_S)

    def close(self) -> None:
        self._closed.set()
        if self.rate:
            self._thread.join()

    def _passed(self) -> float:
        return self._then + (time.monotonic() - self._real) * self.rate

    def _settle(self) -> None:
        end = self._passed()
        while self._waiting and self._waiting[0][0] <= end:
            self._at, _, action = heapq.heappop(self._waiting)
            try:
                action()
            finally:
                self._at = None
        self.moved.notify_all()

    def _flow(self) -> None:
        while not self._closed.wait(TICK_S):
            with self.lock:
                self._settle()


def rfc3339(at: float) -> str:
    """An instant as text, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
