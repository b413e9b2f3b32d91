"""The virtual clock: what is due, in order of time, and first come first served at one instant."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
"""Virtual time is counted in whole microseconds, as `datetime` does, so that nothing is rounded."""


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


class Due:
    """Something that will be done; `cancel` leaves it out."""

    __slots__ = ("_clock", "act", "is_background")

    def __init__(self, clock: "Clock", act: Callable[[], object], is_background: bool) -> None:
        self._clock = clock
        self.act: Callable[[], object] | None = act
        self.is_background = is_background

    def cancel(self) -> None:
        if self.act is not None:
            self.act = None
            self._clock.waiting -= not self.is_background


class Clock:
    """Virtual time, which goes on only by `step`.

    now: microseconds since `BEGIN`; waiting: what is due, without what is background.
    """

    def __init__(self) -> None:
        self.now = 0
        self.waiting = 0
        self._heap: list[tuple[int, int, Due]] = []
        self._count = 0

    def datetime(self) -> datetime:
        return BEGIN + timedelta(microseconds=self.now)

    def after(self, delay: int, act: Callable[[], object], is_background: bool = False) -> Due:
        """Act after so many microseconds, of which fewer than none count as none."""
        due = Due(self, act, is_background)
        if not is_background:
            self.waiting += 1
        self._count += 1
        at = self.now + delay if delay > 0 else self.now
        heapq.heappush(self._heap, (at, self._count, due))
        return due

    def next_at(self) -> int | None:
        """When the next thing happens; None: never."""
        heap = self._heap
        while heap and heap[0][2].act is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def step(self) -> bool:
        """Do the next thing that is due; False: there is none."""
        heap = self._heap
        while heap:
            at, _, due = heapq.heappop(heap)
            act = due.act
            if act is not None:
                self.now, due.act = at, None
                if not due.is_background:
                    self.waiting -= 1
                act()
                return True
        return False
