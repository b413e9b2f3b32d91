"""Mounts of datastores by the kernel: once for the machine, at `<root>/datastores/<id>/mount`.

Only root can enter the folder above the mount; a run is shown the folder that its job names, in its
own mount namespace (`binding.py`). Mounts are soft: a server that is away gives errors, and nothing
waits for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time

from ..errors import RefusedError
from ..folders import Folders, take_lock
from ..host.run_root import MNT_DETACH, mounted_below
from .addresses import pinned
from .child import become_client, in_child, unreached
from .share import NFS, Share

MOUNT_S = 40.0
"""For each version that is tried: all of them, and a look at what is mounted, fit into a check."""
RESOLVE_S = 20.0
UNUSED_S = 2 * 3600.0
"""How long a mount stays that nothing uses: longer than a staging may take until its run counts."""
SAFE = "nosuid,nodev,noexec"
NFS_OPTIONS = SAFE + ",soft,timeo=100,retrans=3,proto=tcp"
NFS_VERSIONS = ("4.1", "3,nolock")
SMB_OPTIONS = SAFE + ",soft,nodfs,vers=3.0,noperm,file_mode=0666,dir_mode=0777,nobrl"
"""Any account may write, by the mount alone: no account but root comes to it without a binding."""
_CLIENTS = (
    ("nfs", "nfs4", "mount.nfs", "nfs-common", "libnfs.so.13"),
    ("smb", "cifs", "mount.cifs", "cifs-utils", "libsmbclient.so.0"),
)
_LIBRARIES = {"libnfs.so.13": "libnfs13", "libsmbclient.so.0": "libsmbclient"}
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_ANSWERS = (
    "access denied",
    "Permission denied",
    "No such file",
    "error(13)",
    "error(2)",
    "error(6)",
)
"""What the mount programs say where a server of that kind has answered."""


class NoMountError(Exception):
    """The kernel of this machine cannot mount it; in words, why."""


def folder_of(folders: Folders, datastore_id: str) -> str:
    """Where the datastore is mounted, if it is."""
    return os.path.join(folders.root, "datastores", datastore_id, "mount")


def mounted(folders: Folders, share: Share) -> str:
    """The folder at which the datastore is mounted, now if it was not.

    Raises: NoMountError; RefusedError `datastore-away`, `datastore-refused`.
    """
    if os.geteuid() != 0:
        raise NoMountError("the node's account is not root")
    at = folder_of(folders, share.id)
    above = os.path.dirname(at)
    os.makedirs(above, mode=0o700, exist_ok=True)
    os.chmod(os.path.dirname(above), 0o700)
    lock = take_lock(os.path.join(above, "lock"), wait=True)
    try:
        if not is_mounted(at):
            os.makedirs(at, mode=0o700, exist_ok=True)
            _mount(_pinned(share), at)
    finally:
        os.utime(os.path.join(above, "lock"))
        os.close(lock or 0)
    return at


def _pinned(share: Share) -> Share:
    """The datastore with its checked address. Raises: RefusedError `datastore-away`."""

    def act(_: object) -> str:
        become_client(None)
        return pinned(share).at

    address = in_child(share.place, act, stall_s=RESOLVE_S, limit_s=RESOLVE_S)
    return share._replace(address=str(address))


def is_mounted(at: str) -> bool:
    """Whether something is mounted there, by the kernel's list, which no server can hold up."""
    return os.path.realpath(os.path.dirname(at)) + "/mount" in mounted_below(
        os.path.realpath(os.path.dirname(at))
    )


def ways() -> dict[str, str]:
    """How NFS and SMB shares are reached from this machine, as far as can be seen without one."""
    found = {}
    for kind, system, program, package, library in _CLIENTS:
        if os.geteuid() == 0 and _has_file_system(system) and _program(program):
            found[kind + "_way"] = "kernel"
            continue
        no_mount = "kernel without %s" % system
        if os.geteuid() != 0:
            no_mount = "the node's account is not root"
        elif _has_file_system(system):
            no_mount = "no %s: apt-get install %s" % (program, package)
        try:
            ctypes.CDLL(library)
            found[kind + "_way"] = "user-space (%s)" % no_mount
        except OSError:
            words = "none (%s; no %s: apt-get install %s)"
            found[kind + "_way"] = words % (no_mount, library, _LIBRARIES[library])
    return found


def _has_file_system(name: str) -> bool:
    """Whether the kernel has a file system, or a module of it that it loads when it is needed."""
    with open("/proc/filesystems") as file:
        if name in file.read().split():
            return True
    module = {"nfs4": "nfsv4"}.get(name, name)
    try:
        with open("/lib/modules/%s/modules.dep" % os.uname().release) as file:
            names = [os.path.basename(line.split(":")[0]) for line in file]
        return any(each.startswith(module + ".ko") for each in names)
    except OSError:
        return False


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _mount(share: Share, at: str) -> None:
    if share.type == NFS:
        _mount_nfs(share, at)
        return
    options = SMB_OPTIONS + ",ip=%s" % share.at + (",port=%d" % share.port if share.port else "")
    if share.user:
        domain, _, name = share.user.rpartition("\\")
        options += ",username=%s" % name + (",domain=%s" % domain if domain else "")
    else:
        options += ",guest"
    source = "//%s%s" % (share.host, share.root_path)
    _run(["mount.cifs", source, at, "-o", options], "cifs-utils", share, share.password)


def _mount_nfs(share: Share, at: str) -> None:
    host = "[%s]" % share.at if ":" in share.at else share.at
    port = ",port=%d" % share.port if share.port else ""
    for version in NFS_VERSIONS:
        options = "%s,vers=%s%s" % (NFS_OPTIONS, version, port)
        source = "%s:%s" % (host, share.root_path)
        try:
            _run(["mount.nfs", source, at, "-o", options], "nfs-common", share)
        except RefusedError:
            if version == NFS_VERSIONS[-1]:
                raise
        else:
            return


def _run(arguments: list[str], package: str, share: Share, password: str | None = None) -> None:
    """Run one mount program with a limit; a password goes through a pipe.

    Raises: NoMountError, RefusedError.
    """
    program = _program(arguments[0])
    if program is None:
        raise NoMountError("%s is not installed: apt-get install %s" % (arguments[0], package))
    reader, writer = os.pipe()
    os.write(writer, (password or "").encode() + b"\n")
    os.close(writer)
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    if password is not None:
        environment["PASSWD_FD"] = str(reader)
    try:
        done = subprocess.run(
            ["timeout", "-k", "1", str(int(MOUNT_S)), program, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MOUNT_S + 5,
            pass_fds=[reader],
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise unreached(share.place) from None
    finally:
        os.close(reader)
    if done.returncode == 0:
        return
    said = " ".join((done.stderr + done.stdout).decode(errors="replace").split())[:400]
    has_no_client = "No such device" in said and "or address" not in said
    if has_no_client or "not supported by the system" in said:
        raise NoMountError("the kernel has no %s: %s" % (share.type, said))
    if done.returncode in (124, 137) or not any(words in said for words in _ANSWERS):
        raise unreached(share.place)
    raise RefusedError("datastore-refused", "%s: %s" % (share.place, said))


def unmount(folders: Folders, datastore_id: str) -> None:
    """Take a mount away, also one that hangs; silent when it is not there."""
    at = folder_of(folders, datastore_id)
    if is_mounted(at):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.umount2(os.fsencode(at), MNT_DETACH)
    with contextlib.suppress(OSError):
        os.rmdir(at)


def unmount_all(folders: Folders) -> None:
    """Take all mounts away, because the machine leaves the platform."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(os.path.join(folders.root, "datastores")):
            unmount(folders, name)


def unmount_unused(folders: Folders) -> None:
    """Take away the mounts that nobody has asked for lately, and that no open run needs."""
    above = os.path.join(folders.root, "datastores")
    try:
        names = os.listdir(above)
    except FileNotFoundError:
        return
    used = {
        binding["datastore_id"]
        for spec in folders.open_specs()
        for binding in (spec.get("bindings") or {}).values()
        if "datastore_id" in binding
    }
    for name in names:
        lock = take_lock(os.path.join(above, name, "lock"), wait=False)
        if lock is None:
            continue
        try:
            idle_s = time.time() - os.fstat(lock).st_mtime
            if name not in used and idle_s > UNUSED_S:
                unmount(folders, name)
        finally:
            os.close(lock)
