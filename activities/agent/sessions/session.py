"""The loop of a session on its node: it ends with its stream, with its peer, and with the run."""

from __future__ import annotations

import os
import time

from ..host.isolation import Isolation
from . import frames

LOOK_S = 1.0
"""How often it checks whether the run goes on."""
SILENCE_S = 60.0
"""How long the site may be silent, which sends a beat every 15 s: else the site has gone."""


class Session:
    """What a command and a port have in common: bytes from `sources` to the peer, and back."""

    def __init__(self, isolation: Isolation) -> None:
        self.isolation = isolation
        self.peer = frames.Peer(self.hear)
        self.sources: dict[int, int] = {}
        """Descriptor to the kind of the frames of what is read there."""
        self.inlet: frames.Outlet | None = None
        """What takes the bytes of the peer."""
        self.heard_at = time.monotonic()
        self.carried_at = time.monotonic()
        """When a source last had bytes, or waited for the peer."""

    def hear(self, kind: int, payload: bytes) -> None:
        """Do what the peer says."""
        if self.inlet is not None:
            if kind == frames.DATA:
                self.inlet.add(payload)
                self.inlet.flush()
            elif kind == frames.EOF:
                self.end_input()

    def end_input(self) -> None:
        """The peer sends no more bytes."""
        if self.inlet is not None:
            self.inlet.end()

    def step(self, others: list[int], limit_s: float = LOOK_S) -> set[int]:
        """Move what can be moved; return which of the other descriptors can be read.

        Raises: BrokenFrameError.
        """
        can_say = self.peer.out.has_room
        if not can_say:
            self.carried_at = time.monotonic()
        readers = [0, *others, *(self.sources if can_say else ())]
        writers = [self.peer.out.descriptor] if self.peer.out.waiting else []
        inlet = self.inlet
        listens = inlet is None or inlet.has_room or not inlet.is_open
        if inlet is not None and inlet.waiting:
            writers.append(inlet.descriptor)
        can_read, can_write = frames.ready(readers, writers, limit_s, () if listens else (0,))
        if not listens:  # Whoever is not listened to is not silent, but may have gone.
            self.heard_at = time.monotonic()
            self.peer.is_gone = self.peer.is_gone or 0 in can_read
        elif 0 in can_read:
            self.heard_at = time.monotonic()
            self.peer.read()
        for descriptor in list(self.sources):
            if descriptor in can_read:
                self._carry(descriptor)
        if inlet is not None and inlet.descriptor in can_write:
            inlet.flush()
        if self.peer.out.descriptor in can_write:
            self.peer.out.flush()
        return can_read & set(others)

    def goes_on(self) -> bool:
        """Whether there is a peer, and the run runs."""
        is_heard = time.monotonic() - self.heard_at < SILENCE_S
        return (
            is_heard
            and not self.peer.is_gone
            and self.peer.out.is_open
            and self.isolation.is_running()
        )

    def carry_rest(self, limit_s: float) -> None:
        """Say what waits, as long as the peer takes it."""
        until = time.monotonic() + limit_s
        while self.peer.out.waiting and self.peer.out.is_open and time.monotonic() < until:
            _, can_write = frames.ready([], [self.peer.out.descriptor], until - time.monotonic())
            if can_write:
                self.peer.out.flush()

    def _carry(self, descriptor: int) -> None:
        kind = self.sources[descriptor]
        try:
            content = os.read(descriptor, frames.MOST_FRAME)
        except BlockingIOError:
            return
        except OSError:  # A terminal whose last program has gone.
            content = b""
        if content:
            self.carried_at = time.monotonic()
            self.peer.say(kind, content)
            return
        del self.sources[descriptor]
        self.on_end()

    def on_end(self) -> None:
        """A source has ended."""
