"""The system layers: what apt adds to this machine for a set of Debian packages, and not on it.

A layer is built once for each set of packages and each state of the machine's own packages, and is
shared read-only by all runs with that set (`host/run_root.py`). As with environments, a layer's
folder is used only when its marker exists, and it is built under a lock, which the processes of the
build hold as well: an interrupted build starts again, after its last process has ended.

What belongs to the machine and changes by itself is in no layer: name servers, the lists of apt,
and the accounts; the accounts that packages add are kept apart, for the roots of the runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys

from ..errors import RefusedError
from ..files.removal import names_in
from ..folders import Folders
from ..host import file_tree, install_root, launch, prctl, run_root
from ..host.run_root import UPPER
from ..host.spawn import DEFAULT_PATH
from ..host.steps import lock_with_progress, run_step, sync
from . import system_packages
from .environments import MARKER, forget, take

VERB = "install_layer"
STATE = ("/var/lib/dpkg/status", "/etc/ld.so.cache")
"""What differs when a layer does not fit any more: other packages, or other libraries."""
MOST_BYTES = 32 << 30
"""The most of a layer for a run that does not say how large it may be."""
TRIES = 3
KEPT = ("APT_CONFIG", "LANG")
OWNERS = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")
"""The variables by which apt finds the proxies of this machine's owner."""
LEFT_OUT = (
    *("var/lib/apt/lists", "var/cache/apt", "etc/resolv.conf", "etc/hosts", "etc/hostname"),
    *("etc/mtab", "etc/machine-id", "etc/.pwd.lock", "usr/sbin/policy-rc.d", "run"),
    *("etc/" + name + end for name in ("passwd", "group") for end in ("", "-")),
    *(
        "etc/" + name + end
        for name in ("shadow", "gshadow", "subuid", "subgid")
        for end in ("", "-")
    ),
)
UNSAFE = ("-o", "Dpkg::Options::=--force-unsafe-io", "-o", "Dpkg::Use-Pty=0")
"""The layer is written to the disk once, when it is whole."""


def ready(folders: Folders, names: list[str], *, owned: bool, disk_gb: float | None) -> str:
    """The layer with these packages, built if it does not exist; needs root.

    owned: whether it is for a run of the machine's owner, whose credentials for apt serve no
    other. disk_gb: the most that a new layer may have.
    Raises: RefusedError `apt`, `disk-full`; `apt-not-allowed`, when this machine can have none.
    """
    for _ in range(TRIES):
        path = _path(folders, names, owned)
        if take(path):
            return path
        _check_can_be_had(folders, names)
        lock = lock_with_progress(path + ".lock")
        try:
            if take(path):
                return path
            most_bytes = int(disk_gb * 1e9) if disk_gb else MOST_BYTES
            _build(folders, path, names, (owned, most_bytes, lock))
            if _path(folders, names, owned) == path:
                _finish(path, names)
                return path
            file_tree.remove(path)
        finally:
            os.close(lock)
    words = "apt packages %s: the machine's own packages change as often as these are installed"
    raise RefusedError("apt", words % ", ".join(names))


def prune(folders: Folders, oldest: float) -> list[str]:
    """Remove layers that no run has used since `oldest`, and what broken builds have left."""
    in_use = {spec.get("system_layer") for spec in folders.open_specs()}
    removed = []
    for name in names_in(folders.system_layers):
        path = os.path.join(folders.system_layers, name)
        if path not in in_use and os.path.isdir(path) and forget(path, oldest):
            removed.append(os.path.relpath(path, folders.root))
    return removed


def _path(folders: Folders, names: list[str], owned: bool) -> str:
    """Where the layer with these packages is, on the machine as it is now."""
    text = hashlib.sha256("\n".join([*install_root.parts(), *names]).encode())
    for name in STATE:
        with contextlib.suppress(OSError), open(name, "rb") as file:
            text.update(hashlib.sha256(file.read()).digest())
    if owned and any(map(_has_content, install_root.CREDENTIALS)):
        text.update(b"owned")
    return os.path.join(folders.system_layers, text.hexdigest()[:32])


def _has_content(path: str) -> bool:
    return os.path.isfile(path) or bool(names_in(path))


def _check_can_be_had(folders: Folders, names: list[str]) -> None:
    reason = run_root.why_not(folders)
    if reason is not None:
        raise RefusedError(
            "apt-not-allowed",
            "this machine cannot install environment.apt_packages (%s) for one job alone: %s. Have "
            "the owner of the region allow them on its machines (allows_apt_packages), or use an "
            "environment.image that has them" % (", ".join(names), reason),
        )


def _build(folders: Folders, path: str, names: list[str], how: tuple[bool, int, int]) -> None:
    """Build the layer. how: whether it is the owner's, its most bytes, and the lock to hold."""
    owned, most_bytes, lock = how
    file_tree.remove(path)
    os.mkdir(path, 0o755)
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    if owned:
        variables.update((k, v) for k, v in os.environ.items() if k.lower() in OWNERS)
    variables.update(PATH=DEFAULT_PATH, HOME="/root", DEBIAN_FRONTEND="noninteractive")
    command = [sys.executable, "-I", "-S", launch.archive(), VERB]
    command += [folders.root, path, str(most_bytes), "owned" if owned else "others", *names]
    words = "installing %s" % ", ".join(names)
    options = {"env": variables, "cwd": "/", "pass_fds": (lock,)}
    fills = (folders.system_layers,)
    try:
        code, output = run_step(words, command, system_packages.INSTALL_S, options, fills)
        _check(code, output, names, most_bytes)
    except BaseException:  # After any failure: leave no file of the build.
        file_tree.remove(path)
        raise


def _check(code: int, output: str, names: list[str], most_bytes: int) -> None:
    """Raises: RefusedError, when the process of a build has not ended well."""
    if code == install_root.TOO_LARGE:
        words = "apt packages %s: more than %.1f GB: ask for more in resources.disk_size_gb"
        raise RefusedError("disk-full", words % (", ".join(names), most_bytes / 1e9))
    if code != 0:
        text = output[-system_packages.ERROR_CHARACTERS :].strip()
        raise RefusedError("apt", "installing %s: exit %d: %s" % (", ".join(names), code, text))


def install_layer(arguments: list[str]) -> int:
    """Install packages into the layer at a path: the process that `_build` starts."""
    prctl.die_with_parent()
    root, path, most_bytes, whose, *names = arguments

    def install() -> int:
        try:
            system_packages.install(names, _run, *UNSAFE, "--download-only")
            install_root.leave_network()
            system_packages.install(names, _run, *UNSAFE)
        except RefusedError as refused:
            sys.stdout.write(refused.message + "\n")
            sys.stdout.flush()
            return 1
        return 0

    is_owned = whose == "owned"
    return install_root.run_in(Folders(root), path, int(most_bytes), is_owned, install)


def _run(words: str, arguments: list[str]) -> tuple[int, str]:
    """Run a command, whose output is that of this process."""
    del words
    done = subprocess.run(arguments, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, ""


def _finish(path: str, names: list[str]) -> None:
    """Make of what apt has written a layer that fits this machine later as well; mark it whole."""
    upper = os.path.join(path, UPPER)
    for part in install_root.parts():
        _join_part(os.path.join(path, install_root.part_folder(part)), upper + part)
    for name in run_root.ACCOUNTS:
        _keep_accounts(path, name)
    for name in LEFT_OUT:
        file_tree.remove(os.path.join(upper, name))
    for name in ("work", "tmp"):
        file_tree.remove(os.path.join(path, name))
    sync(path)
    with open(os.path.join(path, MARKER), "x") as file:
        file.write("\n".join(names))


def _join_part(part: str, target: str) -> None:
    """Put what was written into a file system of its own to its place in the layer."""
    file_tree.remove(target)  # The empty folder at which it was mounted, if there is one.
    above = os.path.dirname(target)
    if not os.path.isdir(above):
        os.makedirs(above)
        shutil.copymode(os.path.dirname(target), above)
    os.rename(os.path.join(part, UPPER), target)
    file_tree.remove(part)


def _keep_accounts(path: str, name: str) -> None:
    """Keep the lines that packages have added to one of the files of accounts."""
    with open("/etc/" + name, "rb") as file:
        known = set(file.read().splitlines())
    lines = []
    with contextlib.suppress(FileNotFoundError), open(
        os.path.join(path, UPPER, "etc", name), "rb"
    ) as file:
        lines = file.read().splitlines()
    names = {line.partition(b":")[0] for line in known}
    with open(os.path.join(path, name), "wb") as file:
        file.writelines(b"%s\n" % one for one in lines if one.partition(b":")[0] not in names)
