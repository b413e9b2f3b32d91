"""The job accounts: each run has one account of its own at a time, so no run sees another's files.

The accounts are numbered and reused, but only after the earlier run has been cleaned, because its
files must not become those of another run. `<root>/users/<number>` names the run.
"""

from __future__ import annotations

import contextlib
import grp
import itertools
import os
import pwd
import stat
import subprocess

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, take_lock
from . import ipc, processes

ALREADY_THERE = 9
BUILD_USER = "baseload-build"
WRITABLE_BY_OTHERS = 0o022
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


def make(name: str) -> str:
    """Make the account unless it is there. Raises: RefusedError `job-user`."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        _useradd(name)
    return name


def claim(folders: Folders, run_id: str, user: str) -> str:
    """An account for this run alone, the same one when asked again.

    user: JOB_USER for one of the numbered accounts; any other is taken as it is.
    """
    if user != JOB_USER:
        return user
    folder = os.path.join(folders.root, "users")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = take_lock(os.path.join(folder, ".lock"), wait=True)
    try:
        number = _number_for(folders, run_id, _holders(folder))
        make(JOB_USER)  # Its group is that of all of them.
        name = make("%s-%d" % (JOB_USER, number))
        with open(os.path.join(folder, str(number)), "w") as file:
            file.write(run_id)
    finally:
        os.close(lock or 0)
    return name


def forget_files(user: str | None) -> None:
    """Remove the files of a numbered account in folders that all may write to, before its reuse.

    Nothing is removed while a process of the account runs, because the account then serves another
    root on this machine, nor are files in folders where the account itself can make none, which
    are of such a root as well. All folders are opened by descriptors, so that a link which replaces
    a name meanwhile leads nowhere.
    """
    uid = _idle_uid(user)
    if uid is None:
        return
    ipc.remove_of(uid)
    for top in SHARED_FOLDERS:
        if not os.path.isdir(top):
            continue
        for _, folders, names, folder in os.fwalk(top):
            owned = {name for name in folders if _is_owned(name, folder, uid)}
            if os.fstat(folder).st_mode & WRITABLE_BY_OTHERS:
                for name in owned:
                    _empty(name, folder, uid)
                for name in folders + names:
                    _remove_owned(name, folder, uid)
            folders[:] = [name for name in folders if name not in owned]


def _is_owned(name: str, folder: int, uid: int) -> bool:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid == uid
    except OSError:
        return False


def _empty(name: str, folder: int, uid: int) -> None:
    with contextlib.suppress(OSError):  # It has gone by now.
        for _, folders, names, inner in os.fwalk(name, topdown=False, dir_fd=folder):
            for one in folders + names:
                _remove_owned(one, inner, uid)


def forget_ipc(user: str | None) -> None:
    """Free the shared memory that a numbered account still holds after its run has ended."""
    uid = _idle_uid(user)
    if uid is not None:
        ipc.remove_of(uid)


def _idle_uid(user: str | None) -> int | None:
    """The account's number; None for other accounts, or while a process of the account runs."""
    if not user or not user.startswith((JOB_USER + "-", BUILD_USER + "-")):
        return None
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
    return None if _has_processes(uid) else uid


def _has_processes(uid: int) -> bool:
    """Whether the account has a running process; an uncollected zombie does not count."""
    for one in processes.everything():
        with contextlib.suppress(OSError):
            if one.state not in "ZX" and os.stat("/proc/%d" % one.pid).st_uid == uid:
                return True
    return False


def _remove_owned(name: str, folder: int, uid: int) -> None:
    with contextlib.suppress(OSError):  # Gone, or a folder with files of others.
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if found.st_uid == uid:
            remove = os.rmdir if stat.S_ISDIR(found.st_mode) else os.unlink
            remove(name, dir_fd=folder)


def _number_for(folders: Folders, run_id: str, holders: dict[int, str]) -> int:
    for number, holder in holders.items():
        if holder == run_id:
            return number
    taken = {
        number
        for number, holder in holders.items()
        if holder and os.path.lexists(folders.run(holder).path)
    }
    return next(number for number in itertools.count(1) if number not in taken)


def _holders(folder: str) -> dict[int, str]:
    holders = {}
    for name in os.listdir(folder):
        if name.isdigit():
            with open(os.path.join(folder, name)) as file:
                holders[int(name)] = file.read()
    return holders


def _useradd(name: str) -> None:
    """A job's account is in the group of all jobs and in those of GPUs, any other in its own."""
    is_of_job = name.startswith(JOB_USER)
    group = ["--gid", JOB_USER] if is_of_job and name != JOB_USER else ["--user-group"]
    arguments = [
        "useradd",
        "--system",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--shell",
        "/usr/sbin/nologin",
        *group,
        *(_gpu_groups() if is_of_job else []),
        name,
    ]
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise RefusedError("job-user", "useradd: %s" % error) from error
    if done.returncode not in (0, ALREADY_THERE):
        raise RefusedError(
            "job-user",
            "useradd %s: exit %d: %s"
            % (name, done.returncode, done.stderr.decode(errors="replace").strip()),
        )


def _gpu_groups() -> list[str]:
    """Groups that the device files of GPUs may belong to."""
    names = [group.gr_name for group in grp.getgrall() if group.gr_name in ("video", "render")]
    return ["--groups", ",".join(names)] if names else []
