"""The forwarder of a federated run: it carries connections to what the run may reach.

It listens in the network of the run, at the addresses of its egress, and connects in the network of
the machine, as an account of jobs, so that the network wall holds for it as for any job.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import List

from .egress import Place, place_of, why_closed

CONNECT_S = 15.0
IDLE_S = 3600.0
"""After so long without a byte, a connection ends."""
MOST_CONNECTIONS = 400
"""`select` takes descriptors below 1,024, and each connection has two."""
BACKLOG = 128
CHUNK_BYTES = 1 << 18
ABORT = struct.pack("ii", 1, 0)


def listeners(found: List[Place]) -> List[socket.socket]:
    """Listen for what the run may reach, in the network of this process. Raises: OSError."""
    made = []
    for version, port in sorted({(one.network.version, one.port) for one in found}):
        family, everywhere = (
            (socket.AF_INET, "0.0.0.0") if version == 4 else (socket.AF_INET6, "::")
        )
        networks = {
            one.network for one in found if (one.network.version, one.port) == (version, port)
        }
        are_single = all(one.prefixlen == one.max_prefixlen for one in networks)
        single = [str(one.network_address) for one in networks]
        # Where it can be, only at the addresses that are meant: the run may want the port itself.
        for address in single if are_single else [everywhere]:
            listening = socket.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address, port))
            listening.listen(BACKLOG)
            listening.setblocking(False)
            made.append(listening)
    return made


class Forwarder:
    """The forwarder of one run, which ends when `ends` can be read."""

    def __init__(self, found: List[Place], listening: List[socket.socket], ends: int) -> None:
        self._places = found
        self._listening = listening
        self._ends = ends
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def serve(self) -> None:
        """Carry connections until the run's command has ended."""
        by_number = {one.fileno(): one for one in self._listening}
        while True:
            ready, _, _ = select.select([self._ends, *by_number], [], [])
            if self._ends in ready:
                return
            for number in ready:
                with contextlib.suppress(OSError):
                    self._take(by_number[number].accept()[0])

    def _take(self, inner: socket.socket) -> None:
        if not self._free.acquire(blocking=False):
            _abort(inner)
            return
        try:
            threading.Thread(target=self._carry, args=(inner,), daemon=True).start()
        except RuntimeError:  # No thread can be started just now.
            self._free.release()
            _abort(inner)

    def _carry(self, inner: socket.socket) -> None:
        try:
            outer = self._reach(inner)
            if outer is None:
                _abort(inner)
                return
            with inner, outer:
                _join(inner, outer)
        except OSError:
            _abort(inner)
        finally:
            self._free.release()

    def _reach(self, inner: socket.socket) -> socket.socket | None:
        """The connection to what the run has asked for; None: it may not, or nothing answers."""
        address, port = inner.getsockname()[:2]
        place = place_of(self._places, address, port)
        if place is None:
            return None
        for family, kind, number, _, at in socket.getaddrinfo(
            place.host or address, port, type=socket.SOCK_STREAM
        ):
            if why_closed(str(at[0])) is not None:
                continue
            outer = socket.socket(family, kind, number)
            outer.settimeout(CONNECT_S)
            try:
                outer.connect(at)
            except OSError:
                outer.close()
                continue
            return outer
        return None


def _join(inner: socket.socket, outer: socket.socket) -> None:
    """Carry bytes both ways until both have ended."""
    ways = {inner: outer, outer: inner}
    for one in ways:
        one.settimeout(IDLE_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while ways:
        ready, _, _ = select.select(list(ways), [], [], IDLE_S)
        if not ready:
            return
        for one in ready:
            content = one.recv(CHUNK_BYTES)
            if content:
                ways[one].sendall(content)
                continue
            with contextlib.suppress(OSError):
                ways[one].shutdown(socket.SHUT_WR)
            del ways[one]


def _abort(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    connection.close()
