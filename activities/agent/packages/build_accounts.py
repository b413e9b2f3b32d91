"""The unprivileged accounts that build packages, because the set-up code of packages is untrusted.

Each build on this machine has one account at a time; accounts are numbered and reused. Each build
has its own home, with pip's cache in it, which is removed afterwards, so that no build finds files
of another build. A build for the machine's owner gets the owner's settings of pip; any other build
gets none of them. No build reaches more of the machine than a job without GPUs: it is behind the
wall around the network of jobs, with a /dev and a /proc of its own.
"""

from __future__ import annotations

import contextlib
import grp
import itertools
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import RefusedError
from ..folders import JOB_USER, Folders, take_lock
from ..host import (
    device_files,
    file_tree,
    job_accounts,
    mount_namespace,
    network_wall,
    prctl,
    process_tree,
)
from ..host.spawn import DEFAULT_PATH
from ..loading import load

# Of the machine, as the accounts are, and not of one root on it.
LOCK = "/run/baseload-build-%d.lock"
HOME = ".home"
FILES = "files"
# The variables that a build gets.
KEPT = re.compile(r"(ssl_cert_(file|dir)|(requests|curl)_ca_bundle|path)\Z", re.IGNORECASE)
# Those by which the machine's owner reaches a package index, for the owner's own builds alone.
OWNERS = re.compile(r"(pip_\w+|\w+_proxy)\Z", re.IGNORECASE)


@contextlib.contextmanager
def building(
    folders: Folders,
    path: str,
    *,
    foreign: bool,
    owned: bool,
    group: int | None = None,
    layer: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Iterator[dict[str, Any]]:
    """Make the folder `path`, and yield the options of Popen for the steps that build into it.

    As root, the steps run as an account of this build alone. Afterwards no process of the account
    is left, and the folder is root's and read-only to all others; after a failure it is removed.
    Without root, the steps run as our own account.
    foreign: whether any program other than the node's own will run.
    owned: whether the build is for the machine's owner; any other build gets none of the owner's
    settings of pip, which may hold credentials.
    group: the group that the account needs to enter the folder above `path`.
    layer: the system layer with which the steps run, as the runs will.
    files: what the steps find below the folder `FILES` of their working folder, by its name.
    Raises: RefusedError `packages`, when a process of the build stays; `network-wall`; whatever a
    step raises.
    """
    _clear(path)
    os.makedirs(path)
    if os.geteuid() != 0 or not foreign:
        options: dict[str, Any] = {}
        if foreign and not owned:
            options["env"] = _variables(path, owned)
        with _own_home(path + HOME, files or {}):
            yield dict(options, cwd=path + HOME) if files else options
        return
    account, lock = _claim()
    try:
        entry = pwd.getpwnam(account)
        end_processes(entry.pw_uid)  # The processes of an interrupted build.
        become = _becoming(folders, entry, [] if group is None else [group], layer)
        with _home(path + HOME, entry, owned, files or {}) as options:
            options["preexec_fn"] = become
            os.chmod(path, 0o700)
            os.chown(path, entry.pw_uid, entry.pw_gid)
            try:
                yield options
                end_processes(entry.pw_uid)
                _take_back(path, entry.pw_uid)
            except BaseException:  # After any failure: leave no process and no file of the build.
                end_processes(entry.pw_uid)
                _clear(path)
                raise
            finally:
                job_accounts.forget_files(account)
    finally:
        os.close(lock)


def _claim() -> tuple[str, int]:
    """An account that no other build of this machine uses now, and the lock that reserves it."""
    for number in itertools.count(1):
        lock = take_lock(LOCK % number, wait=False)
        if lock is not None:
            return job_accounts.make("%s-%d" % (job_accounts.BUILD_USER, number)), lock
    raise AssertionError("counting never ends")


def _variables(home: str, owned: bool) -> dict[str, str]:
    """The variables of a build; without `owned`, pip reads no configuration of this machine."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if KEPT.match(name) or (owned and OWNERS.match(name))
    }
    if not owned:
        variables["PIP_CONFIG_FILE"] = os.devnull
    variables.setdefault("PATH", DEFAULT_PATH)
    variables.update(HOME=home, LANG="C.UTF-8", PIP_NO_CACHE_DIR="1")
    return variables


@contextlib.contextmanager
def _own_home(home: str, files: Mapping[str, bytes]) -> Iterator[None]:
    """A working folder for steps that run as our own account, where they need one."""
    if not files:
        yield
        return
    _clear(home)
    os.mkdir(home, 0o700)
    try:
        _put(home, files)
        yield
    finally:
        _clear(home)


def _put(home: str, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        target = os.path.join(home, FILES, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb") as file:
            file.write(content)


@contextlib.contextmanager
def _home(
    home: str, entry: pwd.struct_passwd, owned: bool, files: Mapping[str, bytes]
) -> Iterator[dict[str, Any]]:
    """A home for the account, with these files, and the options of its processes.

    owned: with our own pip's settings.
    """
    variables = _variables(home, owned)
    variables.update(TMPDIR=os.path.join(home, "tmp"), USER=entry.pw_name, LOGNAME=entry.pw_name)
    _clear(home)
    os.mkdir(home, 0o700)
    try:
        os.mkdir(variables["TMPDIR"])
        for name, source in _pip_configurations().items() if owned else ():
            target = os.path.join(home, name)
            with contextlib.suppress(FileNotFoundError):
                _copy(source, target)
                if name == "pip.conf":
                    variables["PIP_CONFIG_FILE"] = target
        _put(home, files)
        _give(home, entry)
        yield {"env": variables, "cwd": home}
    finally:
        _clear(home)


def _pip_configurations() -> dict[str, str]:
    """The files with our own pip settings, which other accounts may not be able to read."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    found = {
        ".pip/pip.conf": os.path.expanduser("~/.pip/pip.conf"),
        ".config/pip/pip.conf": os.path.join(folder, "pip/pip.conf"),
    }
    named = os.environ.get("PIP_CONFIG_FILE")
    if named and named != os.devnull:
        found["pip.conf"] = named
    return found


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as file:
        content = file.read()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(content)


def _give(top: str, entry: pwd.struct_passwd) -> None:
    for folder, _, names in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.lchown(path, entry.pw_uid, entry.pw_gid)


def _becoming(
    folders: Folders, entry: pwd.struct_passwd, groups: list[int], layer: str | None
) -> Callable[[], None]:
    """What makes a process that of the account, in the child process before its program starts."""
    gid = entry.pw_gid
    if network_wall.is_asked(folders):
        network_wall.keep(folders, entry.pw_name)
        gid = grp.getgrnam(JOB_USER).gr_gid  # The wall is around this group.
    devices = device_files.of_run({"user": entry.pw_name})

    enter_layer = load("host.run_root:enter") if layer else None

    def become() -> None:
        os.setsid()
        if enter_layer is not None:
            folder = os.getcwd()
            enter_layer(layer)
            os.chdir(folder)
        if devices is not None:
            mount_namespace.enter(folders, devices, {})
        os.umask(0o022)
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(entry.pw_uid)
        prctl.forbid_new_privileges()

    return become


def end_processes(uid: int) -> None:
    """KILL all processes of this account. Raises: RefusedError `packages`, when one stays."""
    left = process_tree.end_account(uid)
    if left:
        raise RefusedError("packages", "processes of a build cannot be ended: %s" % left)


def _take_back(top: str, uid: int) -> None:
    """Give everything below to root, and let no other account write to it.

    Remove what does not belong to the account (a link to another's file) or is not a plain file.
    """
    for folder in file_tree.walk(top):
        os.fchown(folder.descriptor, 0, 0)
        os.fchmod(folder.descriptor, 0o755)
        for name in folder.names:
            found = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
            plain = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
            if found.st_uid != uid or not plain:
                os.unlink(name, dir_fd=folder.descriptor)
                continue
            os.chown(name, 0, 0, dir_fd=folder.descriptor, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                mode = 0o755 if found.st_mode & 0o100 else 0o644
                os.chmod(name, mode, dir_fd=folder.descriptor)


def _clear(path: str) -> None:
    """Remove a folder, even if a process of another account still tries to write to it."""
    with contextlib.suppress(FileNotFoundError):
        if os.geteuid() == 0:
            os.lchown(path, 0, 0)
            os.chmod(path, 0o700)
    file_tree.remove(path)
