"""Merges several streams of the API into one queue, so that only one thread prints."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baseload.errors import BaseloadError
from baseload.server_events import ServerEvent

if TYPE_CHECKING:
    from baseload._sync.transport import Transport


@dataclass(frozen=True)
class Stream:
    """A stream to follow; `name` says from which stream an event came."""

    name: str
    path: str
    query: Mapping[str, Any]
    last_event_id: str | None = None


@dataclass(frozen=True)
class Arrival:
    """An event of a stream; without an event the stream has ended, or failed with `error`."""

    name: str
    event: ServerEvent | None = None
    error: BaseloadError | None = None


class Feed:
    """The merged streams, followed in threads that end with the process."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._arrivals: queue.Queue[Arrival] = queue.Queue(maxsize=1000)
        self.open: set[str] = set()

    def add(self, stream: Stream) -> None:
        self.open.add(stream.name)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def arrivals(self, tick_s: float = 1.0) -> Iterator[Arrival | None]:
        """The arrivals in order, until the last stream ends; None after `tick_s` without one."""
        while self.open:
            arrival = self.take(tick_s)
            yield arrival

    def take(self, limit_s: float) -> Arrival | None:
        """The next arrival within the limit, else None. Raises: the error that ended a stream."""
        with contextlib.suppress(queue.Empty):
            arrival = self._arrivals.get(timeout=limit_s)
            if arrival.event is None:
                self.open.discard(arrival.name)
            if arrival.error is not None:
                raise arrival.error
            return arrival
        return None

    def _read(self, stream: Stream) -> None:
        error: BaseloadError | None = None
        try:
            for event in self._transport.follow(stream.path, stream.query, stream.last_event_id):
                self._arrivals.put(Arrival(stream.name, event))
        except BaseloadError as cause:
            error = cause
        except RuntimeError:
            # The command has ended and closed its connections: no thread reads the queue now.
            return
        self._arrivals.put(Arrival(stream.name, None, error))


class Deadline:
    """A limit on waiting, in seconds from now; None: no limit."""

    def __init__(self, limit_s: float | None) -> None:
        self._at = None if limit_s is None else time.monotonic() + limit_s

    @property
    def passed(self) -> bool:
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds until the limit, endless without one."""
        return math.inf if self._at is None else self._at - time.monotonic()
