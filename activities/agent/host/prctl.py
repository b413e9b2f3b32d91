"""The settings of a process that only Linux has, and that Python has no words for."""

from __future__ import annotations

import ctypes
import signal

SET_PDEATHSIG = 1
DROP_CAPABILITY = 24
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVS = 38


def adopt_orphans() -> None:
    """From now on every orphaned descendant becomes this process's child.

    So a process without children has no descendants at all, also none that daemonised.
    """
    _set(SET_CHILD_SUBREAPER)


def forbid_new_privileges() -> None:
    """From now on no set-uid program gives this process or its children more rights."""
    _set(SET_NO_NEW_PRIVS)


def die_with_parent() -> None:
    """From now on this process is killed when its parent ends, in whatever way."""
    _set(SET_PDEATHSIG, signal.SIGKILL)


def end_with_parent(number: int) -> None:
    """From now on this process gets this signal when its parent ends; a change of its account
    before the call would undo it."""
    _set(SET_PDEATHSIG, number)


def keep_capabilities(kept: frozenset[int]) -> None:
    """No program that this process starts from now on has other capabilities than these."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number not in kept:
            _set(DROP_CAPABILITY, number)


def _set(option: int, value: int = 1) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d)" % option)
