"""The settings of a process that only Linux has, and that Python has no words for."""

from __future__ import annotations

import ctypes
import signal

SET_PDEATHSIG = 1
SET_KEEPCAPS = 8
DROP_CAPABILITY = 24
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522


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


def keep_through_setuid() -> None:
    """The next change of this process's user takes no capability away that it may have."""
    _set(SET_KEEPCAPS)


def set_capabilities(kept: frozenset[int]) -> None:
    """This process has these capabilities and no others from now on. Raises: OSError."""
    masks = [sum(1 << (number % 32) for number in kept if number // 32 == half) for half in (0, 1)]
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, by half.
    sets = (ctypes.c_uint32 * 6)(masks[0], masks[0], 0, masks[1], masks[1], 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _set(option: int, value: int = 1) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d)" % option)
