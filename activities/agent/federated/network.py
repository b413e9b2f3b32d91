"""The network of a federated run: a namespace of its own that leads nowhere.

It has a loopback of its own, so neither addresses nor ports nor abstract sockets of the machine or
of other runs are in it. A forwarder carries what the egress allows; without egress there is none.
"""

from __future__ import annotations

import array
import contextlib
import grp
import os
import pwd
import resource
import signal
import socket
import sys
from typing import List

from ..errors import RefusedError
from ..folders import JOB_USER
from ..host import prctl, run_root
from . import links
from .egress import Place
from .forwarder import Forwarder, listeners

MADE_WITHIN_S = 60.0
MOST_OPEN = 256
MOST_DESCRIPTORS = 1024


class Network:
    """The network of one run, for as long as its supervisor lives and has not ended it.

    Raises: RefusedError `no-network`, when it cannot be made; the run then does not start.
    """

    def __init__(self, found: List[Place]) -> None:
        ours, theirs = socket.socketpair()
        ends, self._lives = os.pipe()
        self._forwarder = os.fork()
        if not self._forwarder:
            ours.close()
            os.close(self._lives)
            _be_forwarder(found, theirs, ends)
        theirs.close()
        os.close(ends)
        with ours:
            ours.settimeout(MADE_WITHIN_S)
            self.namespace = _received(ours)

    @property
    def path(self) -> str:
        """Where other programs of root's find it, such as podman."""
        return "/proc/%d/fd/%d" % (os.getpid(), self.namespace)

    def enter(self) -> None:
        """Be in it from now on, as all that this process starts. Raises: OSError."""
        links.enter(self.namespace, links.CLONE_NEWNET)

    def end(self) -> None:
        """Let the forwarder end, once; no connection outlives that."""
        if self._lives >= 0:
            os.close(self._lives)
            self._lives = -1


def _received(ours: socket.socket) -> int:
    """The namespace that the forwarder has made."""
    descriptors = array.array("i")
    try:
        words, control, _, _ = ours.recvmsg(1000, socket.CMSG_SPACE(descriptors.itemsize))
    except OSError as error:
        raise RefusedError("no-network", "the network of the run: %s" % error) from error
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: descriptors.itemsize])
            return descriptors[0]
    said = words.decode(errors="replace") or "its forwarder has ended"
    raise RefusedError("no-network", "the network of the run: %s" % said)


def _be_forwarder(found: List[Place], to: socket.socket, ends: int) -> None:
    """Make the network, hand it over, and carry connections, as an account of jobs."""
    try:
        for descriptor in set(range(3, MOST_OPEN)) - {to.fileno(), ends}:
            with contextlib.suppress(OSError):  # Such as the lock of the run, which is not ours.
                os.close(descriptor)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The run may end its connections in time.
        outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        run_root.unshare(links.CLONE_NEWNET)
        links.raise_loopback()
        for network in sorted({one.network for one in found}, key=str):
            links.make_local(network)
        listening = listeners(found)
        inside = os.open("/proc/self/ns/net", os.O_RDONLY)
        links.enter(outside, links.CLONE_NEWNET)
        rights = array.array("i", [inside])
        to.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        for descriptor in (inside, outside):
            os.close(descriptor)
        to.close()
        if found:
            _become_a_job()
            Forwarder(found, listening, ends).serve()
    except BaseException as error:  # noqa: BLE001 - the forked child must never return
        os.write(2, ("forwarder: %r\n" % error).encode())
        with contextlib.suppress(OSError):
            to.sendall(str(error).encode()[:1000])
    finally:
        sys.stderr.flush()
        os._exit(0)


def _become_a_job() -> None:
    """Become the account of all jobs, which is none of a run: neither root's nor the run's."""
    entry = pwd.getpwnam(JOB_USER)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_DESCRIPTORS, MOST_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups([])
    os.setgid(grp.getgrnam(JOB_USER).gr_gid)
    os.setuid(entry.pw_uid)
    prctl.forbid_new_privileges()
    prctl.die_with_parent()
