"""How the key of a sealed model gets to the supervisor of its run, and is never written.

It comes with the request that starts the run. systemd starts the supervisor, which inherits nothing
of that request; so it asks for the key at a socket of root's, once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterator

from ..errors import RefusedError
from ..folders import Run
from .opening import KEY_BYTES

SOCKET = "model.socket"
HANDED_WITHIN_S = 8.0
POLL_S = 0.1
LOCK_CURRENT, LOCK_FUTURE = 1, 2


class Handover:
    """The place where the supervisor of a run gets its key, while its start waits for it."""

    def __init__(self, run: Run, key: str) -> None:
        self._path = run.at(SOCKET)
        self._key = bytes.fromhex(key)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        before = os.umask(0o177)
        try:
            with _short(self._path) as path:
                self._socket.bind(path)
        finally:
            os.umask(before)
        self._socket.listen(4)
        self._socket.settimeout(POLL_S)
        self._run = run

    def serve(self) -> None:
        """Give the key to the first process of ours that asks, if one does in time."""
        until = time.monotonic() + HANDED_WITHIN_S
        try:
            while time.monotonic() < until and not self._run.has("exit.json"):
                if self._has_given():
                    return
        finally:
            self.close()

    def _has_given(self) -> bool:
        try:
            peer, _ = self._socket.accept()
            with peer:
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                if struct.unpack("3i", credentials)[1] != os.geteuid():
                    return False
                peer.sendall(self._key)
        except OSError:  # Nobody has asked yet, or whoever has is gone.
            return False
        return True

    def close(self) -> None:
        """Hand over nothing any more."""
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """A path by which a socket can be named, whose names are at most 107 bytes long."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/%d/%s" % (folder, os.path.basename(path))
    finally:
        os.close(folder)


def take_key(run: Run) -> bytearray:
    """The key of the run's model, from the request that starts it.

    Raises: RefusedError `no-model-key`, when nobody hands it over in time.
    """
    until = time.monotonic() + HANDED_WITHIN_S
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(HANDED_WITHIN_S)
            try:
                with _short(run.at(SOCKET)) as path:
                    asking.connect(path)
                key = bytearray(asking.recv(KEY_BYTES, socket.MSG_WAITALL))
            except OSError:
                key = bytearray()
        if len(key) == KEY_BYTES:
            return key
        time.sleep(0.05)
    raise RefusedError("no-model-key", "the key of the run's model was not handed over")


def forget(key: bytearray) -> None:
    """Overwrite a key in memory."""
    key[:] = bytes(len(key))


def lock_memory() -> None:
    """Keep this process's memory off swap, as far as the machine lets it."""
    ctypes.CDLL(None).mlockall(LOCK_CURRENT | LOCK_FUTURE)
