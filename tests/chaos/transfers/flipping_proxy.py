"""What changes bytes between a node and the region's cache, whose transfers are HTTP over TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

READ_BYTES = 1 << 16


class FlippingProxy:
    """Passes connections on, and changes one byte of what comes back, so many times in all.

    at: which byte of an answer; listens at `port` of `host`, and passes on to `target`.
    """

    def __init__(self, host: str, target: tuple[str, int], at: int, times: int) -> None:
        self._target, self._at, self._left = target, at, times
        self.flipped = 0
        self.passed_bytes = 0
        self._lock = threading.Lock()
        self._listening = socket.create_server((host, 0))
        self.port = int(self._listening.getsockname()[1])

    @contextmanager
    def serving(self) -> Iterator[FlippingProxy]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._target) as far:
            asking = threading.Thread(target=_pass, args=(near, far), daemon=True)
            asking.start()
            passed = 0
            with contextlib.suppress(OSError):  # Who has found a changed byte may go at once.
                while chunk := far.recv(READ_BYTES):
                    near.sendall(self._changed(chunk, passed))
                    passed += len(chunk)
                near.shutdown(socket.SHUT_WR)

    def _changed(self, chunk: bytes, passed: int) -> bytes:
        """The chunk, which begins at the byte `passed` of its answer."""
        with self._lock:
            self.passed_bytes += len(chunk)
            place = self._at - passed
            if not self._left or not 0 <= place < len(chunk):
                return chunk
            self._left -= 1
            self.flipped += 1
        return chunk[:place] + bytes([chunk[place] ^ 1]) + chunk[place + 1 :]


def _pass(near: socket.socket, far: socket.socket) -> None:
    try:
        while chunk := near.recv(READ_BYTES):
            far.sendall(chunk)
    except OSError:
        return
