"""One list of an account's machines for all who ask for it at the same time.

A marketplace that finds no machine by its name is asked for all of them at each poll of each
machine. Callers who ask at once share an answer whose request began after each of them asked, so
that none gets one that is older than its question.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

KEPT_S = 3.0
"""For how long a machine that a list showed counts as seen."""


class SharedList(Generic[Item]):
    """The list of one account. Thread-safe.

    kept_s: how old an answer of `recent` may be.
    """

    def __init__(self, kept_s: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._kept_s = kept_s
        self._now = now
        self._lock = threading.Lock()
        self._began_at = float("-inf")
        self._items: Sequence[Item] = ()

    def fresh(self, read: Callable[[], Sequence[Item]]) -> Sequence[Item]:
        """The list, by a request that began no earlier than this call; `read` makes one.

        Raises: whatever `read` raises.
        """
        asked_at = self._now()
        with self._lock:
            if self._began_at < asked_at:
                began_at = self._now()
                self._items = read()
                self._began_at = began_at
            return self._items

    def recent(self) -> Sequence[Item]:
        """The last list, or nothing when it is too old. What it does not show may be there."""
        with self._lock:
            return self._items if self._now() - self._began_at < self._kept_s else ()

    def forget(self) -> None:
        """Count the last list as too old, because the caller has changed what is there."""
        with self._lock:
            self._began_at = float("-inf")
