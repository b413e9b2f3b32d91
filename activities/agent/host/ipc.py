"""Shared memory, semaphores and queues of System V: they outlive the processes that made them."""

from __future__ import annotations

import ctypes

IPC_RMID = 0
IDENTIFIERS = {"shm": "shmid", "sem": "semid", "msg": "msqid"}


def remove_of(uid: int) -> None:
    """Remove all that this account has made or owns; silent when there is nothing."""
    libc = ctypes.CDLL(None)
    for identifier in owned("shm", uid):
        libc.shmctl(identifier, IPC_RMID, None)
    for identifier in owned("sem", uid):
        libc.semctl(identifier, 0, IPC_RMID)
    for identifier in owned("msg", uid):
        libc.msgctl(identifier, IPC_RMID, None)


def owned(kind: str, uid: int) -> list[int]:
    """Identifiers of one kind (`shm`, `sem`, `msg`); none where the kernel has no such thing."""
    try:
        with open("/proc/sysvipc/" + kind) as file:
            names, *lines = (line.split() for line in file)
    except (OSError, ValueError):
        return []
    found = [dict(zip(names, line)) for line in lines]
    mine = [one for one in found if str(uid) in (one.get("uid"), one.get("cuid"))]
    return [int(one[IDENTIFIERS[kind]]) for one in mine]
