"""When the bytes of logs were stored: marks of an offset and an instant, beside each log.

A mark says when the bytes from its offset on were stored, and holds until the next one. A local
store appends marks to one file for each run; any other store keeps an object for each mark, with
the mark in its name. Marks are for people who read a log: a mark that is lost loses no bytes.
"""

import contextlib
import struct
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from activities.storage.blobs import blob_store
from activities.storage.names import log_times_name, place_of

FILE_INTERVAL_S = 1.0
OBJECT_INTERVAL_S = 10.0
"""The shortest time between two marks of a log, as each of them is an object."""
MOST_RUNS = 10_000
"""Of how many runs a process remembers the last mark."""
_MARK = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class Times:
    """The marks of one log by offset; instants are in seconds since 1970 and never fall."""

    offsets: tuple[int, ...] = ()
    instants_s: tuple[float, ...] = ()

    def at_s(self, offset: int) -> float | None:
        """When the byte at an offset was stored; None: that is not known."""
        index = bisect_right(self.offsets, offset) - 1
        return self.instants_s[index] if index >= 0 else None

    def first_since(self, instant_s: float) -> int | None:
        """The offset of the first mark at or after an instant; None: there is no such mark."""
        for offset, stored_s in zip(self.offsets, self.instants_s, strict=True):
            if stored_s >= instant_s:
                return offset
        return None


class LogTimes:
    """The marks of all logs of the store under one URL."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._blobs = blob_store(url)
        self._folder = self._blobs.folder
        self._clock = clock
        self.interval_s = FILE_INTERVAL_S if self._folder else OBJECT_INTERVAL_S
        self._last: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """The instant of the last mark of a run, and the length of its log then."""

    def note(self, run_id: str, offset: int, length: int) -> None:
        """Mark that bytes from `offset` on were stored now, unless the last mark is too young.

        length: of the log with them. A mark that cannot be stored is left out.
        """
        marked_s, marked_length = self._last.get(run_id, (0.0, 0))
        now = self._clock()
        if now - marked_s < self.interval_s or length <= max(marked_length, offset):
            return
        self._last[run_id] = (now, length)
        self._last.move_to_end(run_id)
        if len(self._last) > MOST_RUNS:
            self._last.popitem(last=False)
        with contextlib.suppress(OSError):
            self._store(run_id, offset, round(now * 1000))

    def read(self, run_id: str) -> Times:
        """The marks of a run's log; none of a log that was stored without them."""
        ascending: list[tuple[int, int]] = []
        for offset, instant_ms in sorted(self._stored(run_id)):
            # A writer that repeats bytes is late: they were there at the earlier instant.
            while ascending and ascending[-1][1] > instant_ms:
                ascending.pop()
            ascending.append((offset, instant_ms))
        offsets = tuple(offset for offset, _ in ascending)
        return Times(offsets, tuple(instant_ms / 1000 for _, instant_ms in ascending))

    def _store(self, run_id: str, offset: int, instant_ms: int) -> None:
        name = log_times_name(run_id)
        if self._folder is None:
            self._blobs.put(f"{name}/{offset:020d}-{instant_ms:015d}", b"")
            return
        path = self._folder / place_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(_MARK.pack(offset, instant_ms))

    def _stored(self, run_id: str) -> Iterable[tuple[int, int]]:
        name = log_times_name(run_id)
        if self._folder is None:
            for found in self._blobs.names(name):
                offset, _, instant_ms = found.rpartition("/")[2].partition("-")
                yield int(offset), int(instant_ms)
            return
        try:
            content = (self._folder / place_of(name)).read_bytes()
        except FileNotFoundError:
            return
        whole = len(content) - len(content) % _MARK.size  # The last one may be half written.
        yield from _MARK.iter_unpack(content[:whole])


@lru_cache(maxsize=8)
def log_times(url: str) -> LogTimes:
    """The marks of the logs at this URL, created once for each process."""
    return LogTimes(url)
