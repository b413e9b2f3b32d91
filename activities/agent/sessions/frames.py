"""The frames of a session between the agent and its site: a kind, a length and as many bytes.

Both ways run at once, each with a bounded buffer: who reads slowly is waited for, and holds up
nothing that goes the other way.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Callable

HEADER = struct.Struct(">BI")
DATA, EOF, RESIZE, SIGNAL, BEAT = 0, 1, 2, 3, 4
"""What the site says: bytes, their end, a terminal's size, a signal, and that it is there."""
STARTED, OUT, ERR, OUT_EOF, EXIT = 0, 1, 2, 3, 4
"""What the agent says: that it has begun, bytes, their end, and how it has ended."""
MOST_FRAME = 64 << 10
MOST_WAITING = 256 << 10
"""The bytes that wait for a reader at most; then the writer waits."""


class BrokenFrameError(Exception):
    """What came is no frame."""


def encode(kind: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(payload)) + payload


class Outlet:
    """A descriptor that takes bytes without ever keeping us waiting, closed after its last byte."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.is_ending = False
        os.set_blocking(descriptor, False)

    @property
    def has_room(self) -> bool:
        """Whether more may be added."""
        return len(self.waiting) < MOST_WAITING

    @property
    def is_open(self) -> bool:
        """Whether it still takes bytes."""
        return self.descriptor >= 0

    def add(self, content: bytes) -> None:
        """Add bytes; those for a closed outlet are dropped."""
        if self.is_open and not self.is_ending:
            self.waiting += content

    def end(self) -> None:
        """Close it as soon as nothing waits."""
        self.is_ending = True
        self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        while self.is_open and self.waiting:
            try:
                written = os.write(self.descriptor, self.waiting[:MOST_FRAME])
            except BlockingIOError:
                return
            except OSError:  # Its reader has gone.
                self.close()
                return
            del self.waiting[:written]
        if self.is_ending:
            self.close()

    def close(self) -> None:
        """Close it, whatever waits."""
        if self.is_open:
            os.close(self.descriptor)
        self.descriptor = -1
        self.waiting.clear()


class Peer:
    """The site at the other end of stdin and stdout."""

    def __init__(self, hear: Callable[[int, bytes], None]) -> None:
        self.out = Outlet(1)
        self.is_gone = False
        self._hear = hear
        self._heard = bytearray()
        os.set_blocking(0, False)

    def say(self, kind: int, payload: bytes = b"") -> None:
        """Say one frame."""
        self.out.add(encode(kind, payload))
        self.out.flush()

    def read(self) -> None:
        """Hear what there is. Raises: BrokenFrameError."""
        try:
            chunk = os.read(0, MOST_FRAME)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.is_gone = True
            return
        self._heard += chunk
        while len(self._heard) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._heard)
            if length > MOST_FRAME:
                raise BrokenFrameError("a frame of %d bytes" % length)
            if len(self._heard) < HEADER.size + length:
                return
            payload = bytes(self._heard[HEADER.size : HEADER.size + length])
            del self._heard[: HEADER.size + length]
            self._hear(kind, payload)


def ready(
    readers: list[int], writers: list[int], limit_s: float, unread: tuple[int, ...] = ()
) -> tuple[set[int], set[int]]:
    """The descriptors that can be read or written, or have ended, within the time.

    unread: those of the readers that count only once they have ended.
    """
    poll = select.poll()
    events: dict[int, int] = {}
    for descriptor in readers:
        wanted = 0 if descriptor in unread else select.POLLIN
        events[descriptor] = events.get(descriptor, 0) | wanted
    for descriptor in writers:
        events[descriptor] = events.get(descriptor, 0) | select.POLLOUT
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    found = poll.poll(max(0.0, limit_s) * 1000)
    over = select.POLLHUP | select.POLLERR | select.POLLNVAL
    can_read = {one for one, event in found if event & (select.POLLIN | over) and one in readers}
    can_write = {one for one, event in found if event & (select.POLLOUT | over) and one in writers}
    return can_read, can_write
