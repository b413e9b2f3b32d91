"""The service of a region's cache: starts its server, and restarts a server that is gone.

`cache.json` has the configuration; the watch checks at its start and later on that the server runs.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import ipaddress
import os
import pwd
import signal
import subprocess
import time
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, read_json, take_lock, write_json
from ..host import job_accounts, processes
from ..host.inspection import runtimes
from ..host.interpreter import interpreter_for_jobs
from ..host.launch import archive
from .location import CONFIGURATION, FOLDER, IDENTITY, LOCK, SERVING, answers, configuration_of

USER = "baseload-cache"
INDEX_URL = "https://pypi.org/simple"
UNLIMITED_BYTES = 1 << 60
"""No limit but the disk's, see `store.py: DISK_SHARE`."""
START_LIMIT_S = 10.0
POLL_S = 0.02
LOG = "cache.log"
ERROR_CHARACTERS = 300


def serve_here(folders: Folders, asked: dict[str, Any]) -> dict[str, Any]:
    """Serve the cache here; return its `address`, or None with a `reason` when this fails.

    asked: port (0: any), max_bytes (empty: as the disk allows), index_url (empty: the index in this
    machine's own settings), identity (certificate and key, in PEM) and token, for TLS; registries:
    see `images.py`.
    A machine that cannot serve the cache is still a storage node.
    """
    try:
        host = _inner_address()
        user = job_accounts.make(USER) if os.geteuid() == 0 else None
        wanted = {
            "host": host,
            "port": int(asked["port"]),
            "max_bytes": int(asked.get("max_bytes") or UNLIMITED_BYTES),
            "index_url": asked.get("index_url") or index_of_machine(),
            "user": user,
            "registries": asked.get("registries") or {},
        }
        identity, token = asked.get("identity"), asked.get("token")
        if identity and token:
            bearer = "Bearer " + token
            wanted["token_sha256"] = hashlib.sha256(bearer.encode()).hexdigest()
            wanted["identity_sha256"] = hashlib.sha256(identity.encode()).hexdigest()
        if configuration_of(folders) != wanted:
            end_serving(folders)
            _make_folder(folders, user)
            _keep_identity(folders, identity)
            write_json(os.path.join(folders.root, CONFIGURATION), wanted)
        is_secure = "token_sha256" in wanted
        return {"address": _started(folders), "is_secure": is_secure, "reason": None}
    except RefusedError as refusal:
        return {"address": None, "reason": refusal.message}
    except OSError as error:
        return {"address": None, "reason": str(error)}


def find_address(request: dict[str, Any]) -> dict[str, Any]:
    """The `host` at which this machine would serve a cache; None, where it cannot."""
    del request
    try:
        return {"host": _inner_address()}
    except RefusedError:
        return {"host": None}


def _keep_identity(folders: Folders, identity: str | None) -> None:
    path = os.path.join(folders.root, IDENTITY)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if identity:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(identity)


def _inner_address() -> str:
    """The address at which SSH reached this machine, as the machine itself knows it.

    The machine does not know the public address that its cloud gives it.
    Raises: RefusedError `no-address`, for an address that is public or not IPv4.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    local = words[2] if len(words) == 4 else ""
    try:
        address = ipaddress.IPv4Address(local)
    except ValueError:
        raise RefusedError("no-address", "no IPv4 address inside: %r" % local) from None
    if not address.is_private:
        raise RefusedError("no-address", "%s is not a private address" % address)
    return str(address)


def index_of_machine() -> str:
    """The package index that pip uses on this machine."""
    url = os.environ.get("PIP_INDEX_URL")
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for path in (
        os.environ.get("PIP_CONFIG_FILE") or "",
        os.path.join(folder, "pip/pip.conf"),
        os.path.expanduser("~/.pip/pip.conf"),
        "/etc/pip.conf",
    ):
        if not url:
            url = _index_in(path)
    return url or INDEX_URL


def _index_in(path: str) -> str | None:
    read = configparser.RawConfigParser()
    try:
        read.read(path)
        return read.get("global", "index-url", fallback=None)
    except (configparser.Error, UnicodeDecodeError):
        return None


def _make_folder(folders: Folders, user: str | None) -> None:
    folder = os.path.join(folders.root, FOLDER)
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o700)
    if user:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)


def _started(folders: Folders) -> str:
    """Start the server, and return its address. Raises: RefusedError, when it does not answer."""
    deadline = time.monotonic() + START_LIMIT_S
    keep_serving(folders)
    while time.monotonic() < deadline:
        serving = _serving(folders)
        if serving is not None:
            address = "%s:%d" % (serving["host"], serving["port"])
            if answers(address):
                return address
        time.sleep(POLL_S)
    raise RefusedError("no-cache", "the cache does not start: %s" % _last_words(folders))


def keep_serving(folders: Folders) -> None:
    """Start the server if it is configured and does not run; silent without a configuration."""
    if configuration_of(folders) is None or _is_held(folders):
        return
    python = interpreter_for_jobs(folders)[0]  # Its account may not read root's own files.
    command = [python, "-I", "-S", archive(), "serve_cache", folders.root]
    if "systemd" in runtimes():
        _run(
            "systemd-run",
            "--quiet",
            "--collect",
            "--unit=" + _unit(folders),
            "--property=Restart=on-failure",
            "--property=RestartSec=1",
            "--property=NoNewPrivileges=yes",
            *command,
        )
        return
    with open(os.path.join(folders.root, LOG), "ab") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )


def end_serving(folders: Folders) -> None:
    """Stop the server and remove its configuration; its files stay. Silent without a server."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folders.root, CONFIGURATION))
    serving = _serving(folders)
    if serving is None:
        return
    if "systemd" in runtimes():
        _run("systemctl", "stop", _unit(folders))
    with contextlib.suppress(ProcessLookupError):
        os.kill(serving["pid"], signal.SIGKILL)
    deadline = time.monotonic() + START_LIMIT_S
    while _is_held(folders) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _serving(folders: Folders) -> dict[str, Any] | None:
    """The running server; None when its process has ended."""
    serving = read_json(os.path.join(folders.root, SERVING))
    if serving is None or not processes.is_alive(serving["pid"], serving["start_ticks"]):
        return None
    return serving


def _is_held(folders: Folders) -> bool:
    lock = take_lock(os.path.join(folders.root, LOCK), wait=False)
    if lock is None:
        return True
    os.close(lock)
    return False


def _unit(folders: Folders) -> str:
    """The unit's name, of this root, because in tests a machine may be several nodes."""
    return "%s-%s.service" % (USER, hashlib.sha256(folders.root.encode()).hexdigest()[:8])


def _run(*arguments: str) -> None:
    subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _last_words(folders: Folders) -> str:
    try:
        with open(os.path.join(folders.root, LOG), "rb") as file:
            return file.read()[-ERROR_CHARACTERS:].decode(errors="replace").strip()
    except FileNotFoundError:
        return "systemd's journal says why"
