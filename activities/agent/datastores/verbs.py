"""The verbs of datastores, and what the staging of a run needs of them."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable
from typing import Any, Dict, Optional, Tuple

from ..errors import RefusedError
from ..files.removal import unless_removed
from ..folders import JOB_USER, Folders, Run, take_lock
from ..host import file_tree
from . import binding, kernel
from .addresses import pinned
from .child import Say, become, become_client, client_account, in_child
from .copying import STORED, Fetching, Storing
from .files import Files, WritableFiles
from .nfs import NfsFiles
from .share import NFS, Share, share_of
from .smb import SmbFiles

KERNEL, USER_SPACE = "kernel", "user-space"
STALL_S = 45.0
CHECK_S = 60.0
INPUT_S = 3300.0
OUTPUT_S = 4 * 3600.0 - 300
"""How long one attempt of a copy may take, below the limits of those who wait for it (the staging
of the run, the storing of its output); the next attempt goes on with what is missing."""
DISCARD_S = 60.0
SLOW = "datastore-slow"
TRIAL = ".baseload-check-%s"
INPUT, OUTPUT, SCRATCH = "input", "output", "scratch"

Account = Optional[Tuple[int, int]]


def check_datastore(request: dict[str, Any]) -> dict[str, Any]:
    """Whether a datastore answers this machine, may be written to, and how it is reached.

    Raises: RefusedError `bad-datastore`, `datastore-path`.
    """
    folders = Folders(request.get("root", ""))
    share = share_of(request["datastore"])
    account = _job_account()
    no_mount = None
    try:
        at = kernel.mounted(folders, share)
        why = _in_child(share, _try_mounted(at, account), CHECK_S)
        return _checked(KERNEL, why)
    except kernel.NoMountError as error:
        no_mount = str(error)
    except RefusedError as refused:
        return _not_reached(KERNEL, refused)
    try:
        return _checked(USER_SPACE, _in_child(share, _try_files(share, account), CHECK_S), no_mount)
    except RefusedError as refused:
        return {**_not_reached(USER_SPACE, refused), "no_mount_reason": no_mount}


def _checked(way: str, why: str | None, no_mount: str | None = None) -> dict[str, Any]:
    found: Dict[str, Any] = {"way": way, "reachable": True, "writable": why is None}
    return {**found, "reason": why, "no_mount_reason": no_mount}


def _not_reached(way: str, refused: RefusedError) -> dict[str, Any]:
    """refused: whether the server is there and says no, or nothing can be said to it at all."""
    found: Dict[str, Any] = {"way": way, "reachable": False, "writable": False}
    return {**found, "refused": refused.code == "datastore-refused", "reason": refused.message}


def _in_child(share: Share, act: Callable[[Say], Any], limit_s: float) -> Any:
    return in_child(share.place, act, stall_s=STALL_S, limit_s=limit_s, slow=SLOW)


def _try_mounted(at: str, account: Account) -> Callable[[Say], str | None]:
    def act(_: Say) -> str | None:
        top = os.open(at, os.O_RDONLY | os.O_DIRECTORY)  # Before: no other account comes to it.
        become(account)
        os.listdir(top)
        trial = TRIAL % os.urandom(6).hex()
        try:
            file = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=top)
            os.write(file, b"baseload")
            os.close(file)
            os.unlink(trial, dir_fd=top)
        except OSError as error:
            return "cannot be written to: %s" % error.strerror
        return None

    return act


def _try_files(share: Share, account: Account) -> Callable[[Say], str | None]:
    def act(_: Say) -> str | None:
        files = opened(share, account)
        next(files.entries(""), None)
        trial = TRIAL % os.urandom(6).hex()
        try:
            files.write(trial, iter([b"baseload"]))
            files.remove(trial)
        except RefusedError as refused:
            return "cannot be written to: %s" % refused.message
        return None

    return act


def opened(share: Share, account: Account, known_as: Account = None) -> WritableFiles:
    """The files of a share, in a child, which has the rights of the account alone from now on.

    known_as: the account as which an NFS server knows the child; None: the same.
    Raises: RefusedError `datastore-away`, `datastore-refused`, `no-datastore-client`.
    """
    become_client(account)
    share = pinned(share)
    return NfsFiles(share, known_as or account) if share.type == NFS else SmbFiles(share)


def accessible(
    share: Share, request: dict[str, Any], mounted_files: Callable[[int], Files]
) -> Callable[[], Files]:
    """What opens the files of a share to read them, in a child, as an account as unprivileged as
    those of runs.

    mounted_files: of the open folder of a mount.
    Raises: RefusedError, where the kernel can mount it and its server does not let it.
    """
    account = _job_account()
    try:
        at = kernel.mounted(Folders(request.get("root", "")), share)
    except kernel.NoMountError:
        return lambda: opened(share, account)

    def act() -> Files:
        top = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
        become(account or client_account(account))
        return mounted_files(top)

    return act


def _job_account() -> Account:
    """The account whose rights a check has: one as unprivileged as those of runs."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(JOB_USER)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def provide(
    run: Run, wanted: dict[str, dict[str, Any]], account: Account, most_gb: Any
) -> dict[str, Any]:
    """Bring what a run needs of datastores; what is to be mounted for it at its start.

    wanted: by folder of the run, input, output or scratch, `datastore` and `path`.
    Input of a datastore that is not mounted is copied; its output folder is checked, so that a run
    does not compute for a place that is not there. Its scratch is then on the disk of this machine.
    Raises: RefusedError `datastore-away`, `datastore-refused`, `datastore-path`, `disk-full`.
    """
    bindings: Dict[str, Any] = {}
    for folder, place in wanted.items():
        share = share_of(place["datastore"])
        names = share.parts_of(place["path"])
        try:
            at = kernel.mounted(run.folders, share)
        except kernel.NoMountError:
            if folder == INPUT:
                _fetch(run, share, names, account, most_gb)
                if os.geteuid() == 0:
                    bindings[folder] = {"is_copied": True, "read_only": True}
            else:
                _in_child(share, _reach(share, account), CHECK_S)
            continue
        if folder == SCRATCH:
            names = [*names, run.run_id]
        _in_child(share, _walk(at, names, account, make=folder != INPUT), CHECK_S)
        bindings[folder] = {
            "datastore_id": share.id,
            "at": at,
            "names": names,
            "read_only": folder == INPUT,
        }
    return bindings


def discard_scratch(run: Run, spec: dict[str, Any]) -> None:
    """Remove the scratch of an ended run from its datastore; what cannot be removed stays there."""
    bound = spec["bindings"][SCRATCH]
    account = account_of(spec.get("user"))

    def act(_: Say) -> None:
        top = os.open(bound["at"], os.O_RDONLY | os.O_DIRECTORY)
        become(account)
        above = binding.open_below("/proc/self/fd/%d" % top, bound["names"][:-1])
        file_tree.remove("/proc/self/fd/%d/%s" % (above, bound["names"][-1]))

    if kernel.is_mounted(bound["at"]):
        try:
            in_child(bound["datastore_id"], act, stall_s=DISCARD_S, limit_s=DISCARD_S)
        except RefusedError as refused:
            sys.stderr.write("scratch of %s: %s\n" % (run.run_id, refused.message))


def _reach(share: Share, account: Account) -> Callable[[Say], None]:
    def act(_: Say) -> None:
        next(opened(share, account).entries(""), None)

    return act


def _walk(at: str, names: list[str], account: Account, *, make: bool) -> Callable[[Say], None]:
    def act(_: Say) -> None:
        try:
            top = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
            become(account)
            os.close(binding.open_below("/proc/self/fd/%d" % top, names, make=make))
        except OSError as error:
            words = "%s: %s; a path on a datastore names a folder, and follows no links"
            raise RefusedError(
                "datastore-path", words % ("/".join(names), error.strerror)
            ) from None

    return act


def _fetch(run: Run, share: Share, names: list[str], account: Account, most_gb: Any) -> None:
    """Copy the input; an earlier copy that was cut off goes on.

    The copy is made by the account of the run, and then is root's, so that the run cannot change
    its files.
    """
    part, most = run.at("input.part"), int(float(most_gb or 10) * 1e9)
    os.makedirs(part, mode=0o700, exist_ok=True)
    copier = client_account(account)
    if copier is not None and os.stat(part).st_uid != copier[0]:
        file_tree.give(part, *copier)

    def act(say: Say) -> Any:
        return Fetching(opened(share, account), part, most, say).run(names)

    _in_child(share, act, INPUT_S)
    if copier is not None:
        file_tree.give(part, 0, 0)
    file_tree.remove(run.at(INPUT))
    os.rename(part, run.at(INPUT))


def store_on_datastore(request: dict[str, Any]) -> dict[str, Any]:
    """Store the output of an ended run on a datastore; a repeat stores what is missing.

    Raises: RefusedError `datastore-away`, `datastore-refused`, `datastore-path`, `no-folder`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    share = share_of(request["datastore"])
    names = share.parts_of(request["path"])
    with unless_removed(run):
        spec = run.read("spec.json") or {}
        bound = (spec.get("bindings") or {}).get(OUTPUT)
        if bound is not None:
            at = kernel.mounted(run.folders, share)  # Again, if this machine has restarted since.
            _in_child(share, lambda _: _flush(at), STALL_S)
            return {"files": None, "bytes": 0, "left_out": 0, "way": KERNEL}
        account = account_of(spec.get("user"))
        if not run.has(OUTPUT):
            raise RefusedError("no-folder", "run %s: it has no folder output" % run.run_id)

        def act(say: Say) -> Any:
            with open(run.at(STORED), "a+") as note:  # Before: the folder of the run is root's.
                files = opened(share, account)
                return Storing(files, run, note, say).run(names)._asdict()

        lock = take_lock(run.at("store.lock"), wait=True)
        try:
            return {**_in_child(share, act, OUTPUT_S), "way": USER_SPACE}
        finally:
            os.close(lock or 0)


def _flush(at: str) -> None:
    """Have the server keep what was written. Raises: OSError, when it could not."""
    descriptor = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def account_of(user: str | None) -> Account:
    """The user and group of a run's account; None: those of this process."""
    if not user:
        return None
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid
