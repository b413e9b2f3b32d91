"""The two settings of a process that only Linux has, and that Python has no words for."""

from __future__ import annotations

import ctypes

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


def _set(option: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(%d)" % option)
