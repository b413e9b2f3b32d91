"""One order, by time, of a job's events and of what it prints, which are streams of their own.

A log line has no time, but two events do say where it stands: the first line comes after `running`,
and the last one before `worker exited`. So what is early waits a moment for the other stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from baseload.commands.stream_merge import Arrival, Feed
from baseload.commands.waiting import event_name

LIMIT_S = 2.0
"""How long anything waits for the slower stream, at most."""
QUIET_S = 0.5
"""An exit is shown once the logs have been silent for so long."""
BEGINS = "running"
ENDS = "worker exited"
FINAL = ("finished", "failed", "canceled", "stopped")
AGAIN = ("waiting", "restarting", "rescheduled")
"""After these events the job begins anew."""


class InOrder:
    """The arrivals of a feed in the order of time; `events` is the name of the stream of events.

    has_begun: whether what the job prints waits for no event, as where earlier events are not read.
    """

    def __init__(self, feed: Feed, events: str, *, has_begun: bool = False) -> None:
        self._feed = feed
        self._events = events
        self._has_begun = has_begun
        self._early: deque[Arrival] = deque()
        """What the job has printed before its `running` has come."""
        self._early_until_s = 0.0
        self._exits: deque[Arrival] = deque()
        """An exit whose log may not have come yet, and the events after it."""
        self._exits_until_s = 0.0
        self._quiet_at_s = 0.0

    def arrivals(self, tick_s: float = 1.0) -> Iterator[Arrival | None]:
        """The arrivals until the last stream ends; None after `tick_s` without one."""
        while self._feed.open or self._early or self._exits:
            arrival = self._feed.take(self._pause_s(tick_s)) if self._feed.open else None
            if arrival is not None:
                yield from self._ordered(arrival)
            yield from self._due()
            if arrival is None and not (self._early or self._exits):
                yield None

    def _pause_s(self, tick_s: float) -> float:
        """How long to wait for an arrival: until something that is held back is due."""
        now_s, until_s = time.monotonic(), []
        if self._early:
            until_s.append(self._early_until_s)
        if self._exits:
            until_s.append(min(self._exits_until_s, self._quiet_at_s))
        return max(0.0, min([tick_s, *(each - now_s for each in until_s)]))

    def _ordered(self, arrival: Arrival) -> Iterator[Arrival]:
        now_s = time.monotonic()
        if arrival.event is None and self._early and arrival.name != self._events:
            self._early.append(arrival)  # The events may be the slower stream.
        elif arrival.event is None:
            yield arrival
        elif arrival.name != self._events:
            self._quiet_at_s = now_s + QUIET_S
            if self._has_begun:
                yield arrival
                return
            if not self._early:
                self._early_until_s = now_s + LIMIT_S
            self._early.append(arrival)
        elif self._exits or (event_name(arrival.event.json()) == ENDS and self._logs_go_on):
            if not self._exits:
                self._exits_until_s, self._quiet_at_s = now_s + LIMIT_S, now_s + QUIET_S
            self._exits.append(arrival)
        else:
            yield from self._event(arrival)

    def _due(self) -> Iterator[Arrival]:
        """What has waited long enough, or has nothing more to wait for."""
        now_s = time.monotonic()
        if self._early and (now_s >= self._early_until_s or not self._feed.open):
            yield from self._begin()
        is_quiet = now_s >= min(self._exits_until_s, self._quiet_at_s)
        if self._exits and (is_quiet or not self._logs_go_on):
            yield from self._begin()
            while self._exits:
                yield from self._event(self._exits.popleft())

    def _event(self, arrival: Arrival) -> Iterator[Arrival]:
        name = event_name(arrival.event.json()) if arrival.event is not None else ""
        if name in FINAL:
            yield from self._begin()
        yield arrival
        if name == BEGINS:
            yield from self._begin()
        elif name in AGAIN:
            self._has_begun = False

    def _begin(self) -> Iterator[Arrival]:
        self._has_begun = True
        while self._early:
            yield self._early.popleft()

    @property
    def _logs_go_on(self) -> bool:
        return bool(self._feed.open - {self._events})
