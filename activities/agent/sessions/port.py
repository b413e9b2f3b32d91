"""A connection to a port of a run, made by the run's own account.

So it reaches what a program of the run reaches on this machine, by the same rules of the network
wall: ports of the run, and no port of the machine or of another run.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from typing import Any

from ..errors import RefusedError
from ..folders import Folders
from ..host.isolation import Isolation
from . import frames
from .session import Session

CONNECT_S = 10.0
REST_S = 30.0
HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def connect_port(request: dict[str, Any]) -> None:
    """Carry bytes between the peer and `port` of a run on this machine.

    Raises: RefusedError `not-running`, `no-account`; `port-closed`, when nothing of the run answers
    there.
    """
    isolation = Isolation(Folders(request.get("root", "")).run(request["run_id"]))
    port = int(request["port"])
    descriptor = _connected(isolation, port)
    if descriptor is None:
        words = "run %s: nothing of it listens on port %d"
        raise RefusedError("port-closed", words % (isolation.run.run_id, port))
    PortSession(isolation, descriptor).serve()


class PortSession(Session):
    """One connection and its peer."""

    def __init__(self, isolation: Isolation, descriptor: int) -> None:
        super().__init__(isolation)
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(False)
        self.sources = {descriptor: frames.OUT}
        self.inlet = SocketOutlet(self.socket, os.dup(descriptor))

    def serve(self) -> None:
        """Carry bytes until both ways have ended, or the peer or the run has."""
        self.peer.say(frames.STARTED)
        with contextlib.suppress(frames.BrokenFrameError):
            while (self.sources or self._can_send()) and self.goes_on():
                self.step([])
        self.carry_rest(REST_S)

    def _can_send(self) -> bool:
        return self.inlet is not None and self.inlet.is_open

    def on_end(self) -> None:
        """The job says no more; it may still listen."""
        self.peer.say(frames.OUT_EOF)


class SocketOutlet(frames.Outlet):
    """The way into a socket: the other side learns of its end, and may still answer."""

    def __init__(self, connection: socket.socket, descriptor: int) -> None:
        super().__init__(descriptor)
        self._connection = connection

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        super().close()


def _connected(isolation: Isolation, port: int) -> int | None:
    """A connection as the run's account has it: a child becomes it, and hands us the socket."""
    ours, theirs = socket.socketpair()
    pid = isolation.fork(lambda: _hand_over(isolation, port, theirs))
    theirs.close()
    with ours:
        ours.settimeout(2 * CONNECT_S + 1)
        descriptors = array.array("i")
        try:
            _, control, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
        except socket.timeout:
            control = []
    os.waitpid(pid, 0)
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: descriptors.itemsize])
    return descriptors[0] if descriptors else None


def _hand_over(isolation: Isolation, port: int, to: socket.socket) -> None:
    isolation.enter_groups()
    isolation.enter_network()
    isolation.become("/", isolation.identity({}))
    for family, host in HOSTS:
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.settimeout(CONNECT_S)
            connection.connect((host, port))
        except OSError:
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rights = array.array("i", [connection.fileno()])
        to.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        break
    os._exit(0)
