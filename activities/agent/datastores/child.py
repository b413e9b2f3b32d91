"""A child for each access to a server, with limits, so that a server that hangs holds nobody.

The child says what it does, line by line, over a pipe; one that says nothing for too long is
killed. A child that the kernel does not let go, because it waits inside a mount, is left behind: it
ends as soon as the mount gives up.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, Callable

from ..errors import RefusedError
from ..host import prctl

AWAY = "datastore-away"
"""The code of what a later try may mend: nobody answers, an answer is cut off, no room is left."""
KILLED_WITHIN_S = 2.0
SAID_EACH_S = 2.0
_MOST_LINE = 1 << 20

Say = Callable[[str], None]


def in_child(
    what: str,
    act: Callable[[Say], Any],
    *,
    stall_s: float,
    limit_s: float,
) -> Any:
    """The answer of `act`, a JSON value, from a child with limits.

    what: for people, as `datastore dst-1 (nfs://h/x)`;
    stall_s: how long it may be silent; limit_s: how long it may take in all.
    Raises: RefusedError, that of `act`, or `datastore-away`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _be_child(act, writer)
    os.close(writer)
    try:
        answer = _hear(what, reader, stall_s, time.monotonic() + limit_s)
    finally:
        os.close(reader)
        _end(pid)
    if "refused" in answer:
        raise RefusedError(*answer["refused"])
    return answer["done"]


def _be_child(act: Callable[[Say], Any], writer: int) -> None:
    def tell(document: dict[str, Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        while line:
            line = line[os.write(writer, line) :]

    try:
        prctl.die_with_parent()
        os.setsid()
        tell({"done": act(lambda words: tell({"say": words}))})
    except RefusedError as refused:
        tell({"refused": [refused.code, refused.message]})
    except OSError as error:
        tell({"refused": [AWAY, "%s: %s" % (error.strerror or error, error.filename or "")]})
    except BaseException as error:  # noqa: BLE001 - the forked child must never return
        with contextlib.suppress(OSError):
            tell({"refused": ["datastore-broken", repr(error)]})
    finally:
        os._exit(0)


def _hear(what: str, reader: int, stall_s: float, deadline: float) -> dict[str, Any]:
    """The last line of the child; its progress goes on to stderr, not too often."""
    heard, said_at = b"", 0.0
    while True:
        left = min(stall_s, deadline - time.monotonic())
        ready = select.select([reader], [], [], max(left, 0.0))[0]
        if not ready:
            limit = "within its limit" if left < stall_s else "for %g s" % stall_s
            raise RefusedError(AWAY, "%s: no answer %s" % (what, limit))
        found = os.read(reader, 1 << 16)
        if not found:
            raise RefusedError(AWAY, "%s: the access ended without an answer" % what)
        *lines, heard = (heard + found).split(b"\n")
        if len(heard) > _MOST_LINE:
            raise RefusedError("datastore-broken", "%s: says too much" % what)
        for line in lines:
            document: dict[str, Any] = json.loads(line)
            if "say" not in document:
                return document
            if document["say"] and time.monotonic() - said_at > SAID_EACH_S:
                said_at = time.monotonic()
                sys.stderr.write(document["say"] + "\n")
                sys.stderr.flush()


def become(account: tuple[int, int] | None) -> None:
    """Have the rights of this user and group alone from now on, in a child; None: stay as it is."""
    if account is not None:
        os.setgroups([])
        os.setgid(account[1])
        os.setuid(account[0])
        prctl.die_with_parent()  # The kernel forgets it with the rights.


def _end(pid: int) -> None:
    """KILL the child and collect it, but do not wait for one that the kernel holds."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + KILLED_WITHIN_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
