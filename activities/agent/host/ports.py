"""The ports at which others listen on this machine already."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from ..errors import RefusedError
from ..folders import Run

LISTENING = {"tcp": "0A", "udp": "07"}
"""The state of a socket that waits for whoever comes, by its protocol."""


def check(run: Run, port: int | None, accounts: Collection[int] = ()) -> None:
    """Who comes to the run's port must find the run there.

    accounts: numbers of accounts that may listen at it.
    Raises: RefusedError `port-taken`.
    """
    owner = _listener(port, accounts) if port else None
    if owner is not None:
        words = "run %s: port %d is taken on this node, by a process of the account %d"
        raise RefusedError("port-taken", words % (run.run_id, port, owner))


def _listener(port: int, accounts: Collection[int]) -> int | None:
    """The account that listens at a port of this machine, by its number; None: nobody does."""
    for protocol, state in LISTENING.items():
        for path in ("/proc/net/" + protocol, "/proc/net/%s6" % protocol):
            with contextlib.suppress(OSError), open(path) as file:
                for line in file:
                    _, local, remote, found, *rest = line.split()
                    is_open = found == state and not remote.strip("0:")
                    if is_open and int(local.rpartition(":")[2], 16) == port:
                        owner = int(rest[3])
                        if owner not in accounts:
                            return owner
    return None
