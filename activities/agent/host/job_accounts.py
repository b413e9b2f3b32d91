"""The job accounts: each run has one account of its own at a time, so no run sees another's files.

The accounts are numbered and reused, but only after the earlier run has been cleaned, because its
files must not become those of another run, and only while no process of the account is alive. They
are numbered for the whole machine, on which several control planes may have a root each:
`/var/lib/baseload-accounts/<number>` names the root, the run, its job and its port. Agents of an
earlier release named the run in `<root>/users/<number>`.
"""

from __future__ import annotations

import contextlib
import grp
import itertools
import os
import pwd
import subprocess
from typing import Any

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, Run, read_json, take_lock, write_json
from . import file_tree, ipc, process_tree

ALREADY_THERE = 9
BUILD_USER = "baseload-build"
NUMBERED = (JOB_USER + "-", BUILD_USER + "-")
# Of the machine, as the accounts are, and kept when it restarts, as the files of runs are.
ACCOUNTS = "/var/lib/baseload-accounts"
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")


def make(name: str) -> str:
    """Make the account unless it is there. Raises: RefusedError `job-user`."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        _useradd(name)
    return name


def make_group(name: str) -> int:
    """Make the group unless it is there, and return its id. Raises: RefusedError `job-user`."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        _run(["groupadd", "--system", name])
        return grp.getgrnam(name).gr_gid


def claim(
    folders: Folders,
    run_id: str,
    user: str,
    port: int | None = None,
    more: dict[str, Any] | None = None,
) -> str:
    """An account for this run alone on this machine, the same one when asked again.

    user: JOB_USER for one of the numbered accounts; any other is taken as it is.
    port: at which the run's command listens, and no other run may.
    more: what else the note says: `job_id`, whose workers may reach one another;
    `is_port_private`, whether others of this machine and of its network are kept off the port.
    """
    if user != JOB_USER:
        return user
    os.makedirs(ACCOUNTS, mode=0o700, exist_ok=True)
    run = folders.run(run_id)
    lock = take_lock(os.path.join(ACCOUNTS, ".lock"), wait=True)
    try:
        make(JOB_USER)  # Its group is that of all of them.
        number = _number_for(run, _earlier_holders(folders))
        name = make(_name(number))
        note = {"root": folders.root, "run_id": run_id, "port": port, **(more or {})}
        write_json(_note(number), note)
    finally:
        os.close(lock or 0)
    return name


def holders() -> list[tuple[int, dict[str, Any]]]:
    """The accounts of this machine that serve a run, as numbers, each with what its note says."""
    found = []
    for name in _numbers(ACCOUNTS):
        holder = read_json(_note(int(name)))
        if holder is not None and _is_there(holder):
            with contextlib.suppress(KeyError):
                found.append((pwd.getpwnam(_name(int(name))).pw_uid, holder))
    return found


def numbers() -> set[int]:
    """The numbers of all job accounts of this machine, by which its kernel knows them."""
    return {each.pw_uid for each in pwd.getpwall() if each.pw_name.startswith(JOB_USER + "-")}


def end_processes(run: Run, user: str | None) -> list[int]:
    """KILL every process on this machine of the run's account; return those that stay.

    Nothing is ended where the account is not a numbered one, or serves another run.
    """
    if not user or not user.startswith(JOB_USER + "-"):
        return []
    holder = read_json(_note(int(user.rpartition("-")[2])))
    if holder is not None and not _is_held_by(holder, run):
        return []
    try:
        return process_tree.end_account(pwd.getpwnam(user).pw_uid)
    except KeyError:
        return []


def forget_files(user: str | None) -> None:
    """Remove the files of a numbered account in folders that all may write to, before its reuse.

    Nothing is removed while a process of the account runs, because the account then serves another
    root on this machine, nor are files in folders where the account itself can make none, which
    are of such a root as well.
    """
    uid = _idle_uid(user)
    if uid is None:
        return
    ipc.remove_of(uid)
    # Another job may have closed a folder of its own over a file that this one has put there.
    peers = frozenset(one.pw_uid for one in pwd.getpwall() if one.pw_name.startswith(NUMBERED))
    for top in SHARED_FOLDERS:
        file_tree.remove_owned(top, uid, peers)


def forget_ipc(user: str | None) -> None:
    """Free the shared memory that a numbered account still holds after its run has ended."""
    uid = _idle_uid(user)
    if uid is not None:
        ipc.remove_of(uid)


def _idle_uid(user: str | None) -> int | None:
    """The account's number; None for other accounts, or while a process of the account runs."""
    if not user or not user.startswith(NUMBERED):
        return None
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
    return None if process_tree.of_account(uid) else uid


def _name(number: int) -> str:
    return "%s-%d" % (JOB_USER, number)


def _note(number: int) -> str:
    return os.path.join(ACCOUNTS, str(number))


def _number_for(run: Run, earlier: dict[int, str]) -> int:
    """The number that the run has, else the lowest one that is free on this machine."""
    notes = {int(name): read_json(_note(int(name))) for name in _numbers(ACCOUNTS)}
    for number, holder in notes.items():
        if holder is not None and _is_held_by(holder, run):
            return number
    for number, run_id in earlier.items():
        if run_id == run.run_id and number not in notes:
            return number
    taken = {number for number, holder in notes.items() if holder and _is_there(holder)}
    taken |= {
        number
        for number, run_id in earlier.items()
        if run_id and os.path.lexists(run.folders.run(run_id).path)
    }
    free = (number for number in itertools.count(1) if number not in taken)
    return next(number for number in free if not _is_alive(_name(number)))


def _is_held_by(holder: dict[str, object], run: Run) -> bool:
    return (holder.get("root"), holder.get("run_id")) == (run.folders.root, run.run_id)


def _is_there(holder: dict[str, object]) -> bool:
    """Whether the run that holds an account has not been cleaned."""
    return os.path.lexists(Folders(str(holder.get("root"))).run(str(holder.get("run_id"))).path)


def _is_alive(user: str) -> bool:
    """Whether a process of the account is alive, also in a container of that number."""
    try:
        return bool(process_tree.of_account(pwd.getpwnam(user).pw_uid))
    except KeyError:
        return False


def _earlier_holders(folders: Folders) -> dict[int, str]:
    """The runs of this root that an agent of an earlier release gave an account, by number."""
    folder = os.path.join(folders.root, "users")
    holders = {}
    for name in _numbers(folder):
        with open(os.path.join(folder, name)) as file:
            holders[int(name)] = file.read()
    return holders


def _numbers(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return []


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
    _run(arguments)


def _run(arguments: list[str]) -> None:
    program, name = arguments[0], arguments[-1]
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise RefusedError("job-user", "%s: %s" % (program, error)) from error
    if done.returncode not in (0, ALREADY_THERE):
        raise RefusedError(
            "job-user",
            "%s %s: exit %d: %s"
            % (program, name, done.returncode, done.stderr.decode(errors="replace").strip()),
        )


def _gpu_groups() -> list[str]:
    """Groups that the device files of GPUs may belong to."""
    names = [group.gr_name for group in grp.getgrall() if group.gr_name in ("video", "render")]
    return ["--groups", ",".join(names)] if names else []
