"""The state of the keeper: whom this machine has joined by a mapped port, and the mappings.

<folder>/state.json    for this account alone; the join tokens are in the join file, not here
<folder>/copy.json     the same once more, for where a power cut or a worn disk has damaged it
<folder>/lock          one process at a time
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, Optional

from .exchange import Place
from .gateway import Gateway

STATE, COPY = "state.json", "copy.json"
LOCK = "lock"
LOCK_LIMIT_S = 30.0
POLL_S = 0.05


class BusyError(Exception):
    """Another process of the keeper is at work."""


class State:
    """What the keeper remembers.

    joined: by the URL of an API: `port` (of sshd), `user`, `host_key` (a path), `accepted`,
    `announced` (address and port), `asked_s` (the clock at the last receipt), `added` and
    `failures`.
    mappings: by the port of sshd: `external_port`, `lifetime_s`, `address` (outside), `tries` (to
    delete it), and where the gateway is.
    """

    def __init__(
        self, document: Dict[str, Any], is_damaged: bool = False, is_lost: bool = False
    ) -> None:
        self.is_damaged = is_damaged
        """Whether what was remembered cannot be read, so that it is not known what has ended."""
        self.is_lost = is_lost
        """Whether there is none: it cannot be read, was removed, or nothing was mapped yet."""
        self.joined: Dict[str, Dict[str, Any]] = document.get("joined") or {}
        self.mappings: Dict[str, Dict[str, Any]] = document.get("mappings") or {}

    def gateway(self, port: str) -> Optional[Gateway]:
        """The gateway that has the mapping of this port; None: there is no mapping."""
        mapping = self.mappings.get(port)
        if mapping is None:
            return None
        return Gateway(mapping["service"], Place(*mapping["control"]), mapping["own_address"])

    def is_needed(self, port: str) -> bool:
        """Whether a platform reaches the machine by the mapping of this port."""
        return any(str(one["port"]) == port for one in self.joined.values())


@contextlib.contextmanager
def locked_state(folder: str, limit_s: float = LOCK_LIMIT_S) -> Iterator[State]:
    """The state of this folder, locked, and written when the block ends without an exception.

    A folder that was removed meanwhile stays away.
    Raises: BusyError, when another process has the lock for longer than the limit.
    """
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline_s = time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline_s:
                    raise BusyError("%s: is locked by another process" % folder) from None
                time.sleep(POLL_S)
        state = _read(folder)
        yield state
        is_known = state.joined or state.mappings or not state.is_damaged
        if os.path.isdir(folder) and is_known:
            for name in (STATE, COPY):
                _write(folder, name, {"joined": state.joined, "mappings": state.mappings})
    finally:
        os.close(lock)


def _read(folder: str) -> State:
    missing = 0
    for name in (STATE, COPY):
        try:
            with open(os.path.join(folder, name)) as file:
                document = json.load(file)
        except FileNotFoundError:
            missing += 1
        except (OSError, ValueError):
            continue
        else:
            if isinstance(document, dict):
                return State(document)
    return State({}, is_damaged=missing < 2, is_lost=True)


def _write(folder: str, name: str, document: Dict[str, Any]) -> None:
    part = os.path.join(folder, name + ".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, os.path.join(folder, name))
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(above)
    finally:
        os.close(above)
