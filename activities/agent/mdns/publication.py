"""The publication of a run's hostname: a small process below the run's supervisor.

It ends with its supervisor, in whatever way that ends, and never outlives a restart of the machine,
so that no hostname is answered for without its run. Packets are read by an account without rights.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from ..folders import Run
from ..host import prctl
from ..host.processes import monotonic_s
from .link import Link, NoLinkError, find_link, group_of, is_on_link, open_sockets
from .packets import MOST_BYTES
from .responder import CONFLICT, LEFT, PUBLISHED, Responder

FILE = "hostname.json"
"""What was last said of the hostname: `hostname`, `state`, `addresses`, `message`."""
NOT_PUBLISHED = "not-published"
STATES = (PUBLISHED, CONFLICT, NOT_PUBLISHED)
NAME = "publish"
NOBODY = 65534
RESTART_S = 15.0
CHECK_S = 2.0
"""How often the process looks for its parent and for other addresses."""
SHARE = 0.05
"""Of one CPU, for packets: a flood on the link waits in the socket, and takes none from runs."""


class Publication:
    """The process that publishes the hostname of one run, as its supervisor sees it."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self.run = run
        self.asked = spec["hostname"]
        self.pid = 0
        self.begins_s = 0.0
        self.has_ended = False

    def keep(self) -> None:
        """Start the process, or start it again when it has failed a while ago."""
        if self.pid or self.has_ended or monotonic_s() < self.begins_s:
            return
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            status = _publish(self.run, self.asked, supervisor)
        except BaseException as error:  # noqa: BLE001 - the forked child must never return
            os.write(2, ("hostname %s: %r\n" % (self.asked.get("hostname"), error)).encode())
        finally:
            os._exit(status)

    def reaped(self, pid: int, status: int) -> None:
        """Take note that a child of the supervisor has ended, which may be this process."""
        if pid != self.pid:
            return
        self.pid = 0
        self.begins_s = monotonic_s() + RESTART_S
        self.has_ended = self.has_ended or status == 0

    def end(self) -> None:
        """Have the process take the hostname back, and end; it is not started again."""
        self.has_ended = True
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def _publish(run: Run, asked: dict[str, Any], supervisor: int) -> int:
    """Publish until asked to end; 0: there is no more to do, 1: start it again after a while."""
    stop, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    note = os.open(run.at(FILE), os.O_WRONLY | os.O_CREAT, 0o600)
    # Among what is open is the lock of the run, which must go when its supervisor goes.
    _close_all_but({0, 1, 2, stop, wake, note})
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(NAME)
    hostname = "%s.local" % asked["hostname"]
    report = _Report(note, hostname)
    try:
        link = find_link(str(asked.get("address") or ""))
        sockets = open_sockets(link)
    except (NoLinkError, OSError) as error:
        report(NOT_PUBLISHED, (), "%s is not published: %s" % (hostname, error))
        return 1
    _drop_rights()
    prctl.end_with_parent(signal.SIGTERM)
    station = _Station(link, sockets, stop, supervisor)
    responder = Responder(
        hostname, str(asked["reservation_id"]), int(asked["order"]), station.send, report
    )
    return station.serve(responder)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _drop_rights() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    prctl.forbid_new_privileges()


class _Report:
    """Writes what is said of the hostname into the run's folder, by an open descriptor."""

    def __init__(self, note: int, hostname: str) -> None:
        self.note = note
        self.hostname = hostname

    def __call__(self, state: str, addresses: Sequence[str], message: str) -> None:
        document = {
            "hostname": self.hostname,
            "state": state,
            "addresses": list(addresses),
            "message": message,
        }
        content = json.dumps(document).encode()
        with contextlib.suppress(OSError):  # A full disk: it is published all the same.
            os.ftruncate(self.note, 0)
            os.pwrite(self.note, content, 0)


class _Station:
    """The sockets of a responder, and the time that it lives in.

    stop: readable once the process is to end.
    """

    def __init__(
        self, link: Link, sockets: list[socket.socket], stop: int, supervisor: int
    ) -> None:
        self.link = link
        self.sockets = sockets
        self.stop = stop
        self.supervisor = supervisor
        self.check_s = 0.0
        self.second_s = 0.0
        self.used_s = 0.0
        """How long packets have been handled since `second_s`."""

    def send(self, packet: bytes, to: Any) -> None:
        """Send to one address, with its socket; None: to all on the link."""
        targets = [(one, group_of(one, self.link)) for one in self.sockets] if to is None else [to]
        for one, address in targets:
            with contextlib.suppress(OSError):  # The link is down: mDNS says everything again.
                one.sendto(packet, address)

    def serve(self, responder: Responder) -> int:
        """Serve until stopped, left by the name, or without a link."""
        now_s = time.monotonic()
        responder.take_addresses(self.link.addresses4(), self.link.addresses6(), now_s)
        responder.begin(now_s)
        while responder.state != LEFT:
            ready = self._wait(responder.wait_until_s())
            if self.stop in ready:
                responder.end()
                return 0
            for one in self.sockets:
                if one in ready:
                    self._receive(one, responder)
            now_s = time.monotonic()
            responder.work(now_s)
            if now_s >= self.check_s and not self._check(responder, now_s):
                responder.end()
                return 1
        return 0

    def _wait(self, until_s: float) -> list[Any]:
        now_s = time.monotonic()
        listened: list[Any] = [self.stop]
        if now_s - self.second_s >= 1.0:
            self.second_s, self.used_s = now_s, 0.0
        if self.used_s < SHARE:
            listened += self.sockets
        else:
            until_s = min(until_s, self.second_s + 1.0)
        limit_s = max(0.0, min(until_s, self.check_s) - now_s)
        return select.select(listened, [], [], limit_s)[0]

    def _receive(self, one: socket.socket, responder: Responder) -> None:
        began_s = time.monotonic()
        try:
            packet, notes, _, source = one.recvmsg(MOST_BYTES + 1, 256)
        except OSError:
            return
        if is_on_link(self.link, source[0], notes):
            responder.take(packet, (one, source), source[1], began_s)
        self.used_s += time.monotonic() - began_s

    def _check(self, responder: Responder, now_s: float) -> bool:
        """Whether the supervisor and the link are there; publish other addresses that it has."""
        self.check_s = now_s + CHECK_S
        if os.getppid() != self.supervisor:
            return False
        four, six = self.link.addresses4(), self.link.addresses6()
        if not four and not six:
            return False
        responder.take_addresses(four, six, now_s)
        return True
