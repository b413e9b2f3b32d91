"""A port that leads to another: each connection goes through until it is cut."""

from __future__ import annotations

import contextlib
import socket
import threading

PIECE = 65536
CONNECTS_WITHIN_S = 5.0


class Forwarder:
    """Open from its making until `close`. connections: how many have come so far."""

    def __init__(self, to_host: str, to_port: int, host: str = "127.0.0.1") -> None:
        self.target = to_host, to_port
        self.connections = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End every connection there is; new ones are taken."""
        with self._lock:
            ended = tuple(self._open)
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self.target, CONNECTS_WITHIN_S)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        with self._lock:
            self._open |= {near, far}
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes one way to their end, which the other side hears of."""
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
