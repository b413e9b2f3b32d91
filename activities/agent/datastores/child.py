"""A child for each access to a server, with limits, so that a server that hangs holds nobody.

The child says what it does, line by line, over a pipe; one that says nothing for too long is
killed. A child that the kernel does not let go, because it waits inside a mount, is left behind: it
ends as soon as the mount gives up.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
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

UNREACHED = (
    "cannot be reached: its name is not known, its address is closed to datastores, or no such "
    "server answers there"
)
"""The words of every failure before a server has answered: others would tell whoever chooses the
address of a datastore which hosts and ports answer in the network of the node."""
_CODES = frozenset(
    {
        AWAY, "datastore-refused", "datastore-path", "datastore-broken", "datastore-slow",
        "datastore-moved", "disk-full", "no-datastore-client", "too-deep", "no-folder",
    }
)  # fmt: skip
"""The refusals of a child, which has read what a server has sent and may say anything."""
_NOBODY = 65534
_BIND_SERVICE = 10
_MOST_MEMORY = 4 << 30

Say = Callable[[str], None]


def unreached(what: str) -> RefusedError:
    """The refusal where no server of that kind has answered."""
    return RefusedError(AWAY, "%s: %s" % (what, UNREACHED))


def in_child(
    what: str,
    act: Callable[[Say], Any],
    *,
    stall_s: float,
    limit_s: float,
    slow: str = AWAY,
) -> Any:
    """The answer of `act`, a JSON value, from a child with limits.

    what: for people, as `datastore dst-1 (nfs://h/x)`;
    stall_s: how long it may be silent; limit_s: how long it may take in all;
    slow: the code of the refusal when it has been at work for all of the limit.
    Raises: RefusedError, that of `act`, `datastore-away`, or `slow`.
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
    except _SlowError:
        words = "%s: is not done within %g s; what is there already stays"
        raise RefusedError(slow, words % (what, limit_s)) from None
    finally:
        os.close(reader)
        _end(pid)
    if "done" in answer:
        return answer["done"]
    refused = answer.get("refused")
    if isinstance(refused, list) and [type(one) for one in refused] == [str, str]:
        code, message = refused
        if code in _CODES:
            raise RefusedError(code, message)
    raise RefusedError("datastore-broken", "%s: the access has failed" % what)


class _SlowError(Exception):
    """A child has used all of its time and was at work until then."""


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
    heard, said_at, has_said = b"", 0.0, False
    while True:
        left = min(stall_s, deadline - time.monotonic())
        ready = left > 0 and select.select([reader], [], [], left)[0]
        if not ready and left < stall_s and has_said:
            raise _SlowError
        if not ready:
            raise unreached(what)
        found = os.read(reader, 1 << 16)
        if not found:
            raise RefusedError(AWAY, "%s: the access ended without an answer" % what)
        *lines, heard = (heard + found).split(b"\n")
        if len(heard) > _MOST_LINE:
            raise RefusedError("datastore-broken", "%s: says too much" % what)
        for line in lines:
            document = _read(line)
            if "say" not in document:
                return document
            has_said = True
            if document["say"] and time.monotonic() - said_at > SAID_EACH_S:
                said_at = time.monotonic()
                sys.stderr.write("".join(filter(str.isprintable, str(document["say"]))) + "\n")
                sys.stderr.flush()


def _read(line: bytes) -> dict[str, Any]:
    """What a child has said; nothing, where that is no answer of ours."""
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(line)
        if isinstance(document, dict):
            return document
    return {}


def become(account: tuple[int, int] | None) -> None:
    """Have the rights of this user and group alone from now on, in a child; None: stay as it is."""
    if account is not None:
        os.setgroups([])
        os.setgid(account[1])
        os.setuid(account[0])
        prctl.die_with_parent()  # The kernel forgets it with the rights.


def client_account(account: tuple[int, int] | None) -> tuple[int, int] | None:
    """The user and group of a child that reads what a server sends; None: those of this process,
    which is not root.

    The group is not that of job accounts: what is closed to jobs may be open to datastores.
    """
    if os.geteuid() != 0:
        return None
    return (account[0] if account else _NOBODY), _NOBODY


def become_client(account: tuple[int, int] | None) -> None:
    """Have the rights that the client of a server needs, in a child, before anything is connected.

    Those are the rights of the run's account, without any group, and one more, as some servers ask
    for it: to connect from a port below 1024. Whatever a server can make of its client, that can do
    no more than the run itself.
    """
    prctl.forbid_new_privileges()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    found = client_account(account)
    if found is None:
        return
    uid, gid = found
    prctl.keep_through_setuid()
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        prctl.set_capabilities(frozenset({_BIND_SERVICE}))
    except PermissionError:  # In a container that has it not itself.
        prctl.set_capabilities(frozenset())
    prctl.die_with_parent()  # The kernel forgets it with the rights.


def _end(pid: int) -> None:
    """KILL the child and collect it, but do not wait for one that the kernel holds."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # Whatever it has started.
    until = time.monotonic() + KILLED_WITHIN_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
