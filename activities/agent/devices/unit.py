"""The persistent unit of systemd that starts the keeper of a device at each boot, without us.

The keeper runs from a copy of the agent that is the device's own: it needs neither the network nor
the agent of those who connect later. A copy is named by its content, and is never changed.

systemd starts a keeper again that has failed or was killed, a few times. The keeper goes on from
its state, by which a command that has exited by itself is not started again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import zlib

from ..errors import RefusedError
from ..folders import sync_folder, take_lock
from ..host.launch import archive
from .state import ASKING, Store

UNITS = "/etc/systemd/system"
WANTS = "multi-user.target.wants"
SYSTEMD = "/run/systemd/system"
LIMIT_S = 60.0
STOP_S = 90
RESTART_S = 2
MOST_RESTARTS = 10
"""How often in an hour a keeper that has failed is started again; each request counts anew."""
UNIT = """\
[Unit]
Description=Runs the inference of this device for baseload
After=local-fs.target systemd-udevd.service nftables.service
StartLimitIntervalSec=3600
StartLimitBurst=%(most_restarts)d

[Service]
Type=exec
ExecStart="%(python)s" -I -S "%(archive)s" run_device "%(root)s"
ExecStopPost="%(python)s" -I -S "%(archive)s" end_device "%(root)s"
Restart=on-failure
RestartSec=%(restart_s)d
KillMode=mixed
TimeoutStopSec=%(stop_s)d
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
"""


def name_of(store: Store) -> str:
    """The name of the unit: of this root, because in tests a machine may have several."""
    return "baseload-device-%08x.service" % zlib.crc32(os.fsencode(store.folders.root))


def why_not() -> str | None:
    """Why this machine can start nothing at each of its boots; None when it can."""
    if os.geteuid() != 0:
        return "the login user is not root, who alone has a unit that starts at each boot"
    if not os.path.isdir(SYSTEMD):
        return (
            "a device needs systemd as its init, which starts it at each boot; found no " + SYSTEMD
        )
    return None


def check() -> None:
    """Raises: RefusedError `no-unit`."""
    reason = why_not()
    if reason is not None:
        raise RefusedError("no-unit", reason)


def install(store: Store) -> bool:
    """Write and enable the unit with this agent; whether it was another one before."""
    check()
    path = _own_copy(store)
    text = UNIT % {
        "python": _quoted(sys.executable),
        "archive": _quoted(path),
        "root": _quoted(store.folders.root),
        "stop_s": STOP_S,
        "restart_s": RESTART_S,
        "most_restarts": MOST_RESTARTS + 1,
    }
    name = name_of(store)
    unit = os.path.join(UNITS, name)
    with contextlib.suppress(OSError), open(unit) as file:
        if file.read() == text and _is_enabled(name):
            return False
    part = os.path.join(UNITS, "." + name)
    _write(part, text.encode(), 0o644)
    os.rename(part, unit)
    _systemctl("daemon-reload")
    _systemctl("enable", name)
    _sync_units()
    return True


def _sync_units() -> None:
    for folder in (UNITS, os.path.join(UNITS, WANTS)):
        with contextlib.suppress(FileNotFoundError):  # Nothing is enabled on this machine.
            sync_folder(folder)


def _is_enabled(name: str) -> bool:
    return os.path.islink(os.path.join(UNITS, WANTS, name))


def start(store: Store) -> None:
    """Start the keeper unless it runs. Raises: RefusedError `systemd`."""
    _forget_failures(store)
    _systemctl("start", name_of(store))


def restart(store: Store) -> None:
    """Start the keeper anew, with the agent that is installed now. Raises: RefusedError."""
    _forget_failures(store)
    _systemctl("restart", name_of(store), limit_s=STOP_S + LIMIT_S)


def _forget_failures(store: Store) -> None:
    """Count starts anew: systemd refuses those of a request, too, when there were too many."""
    _run("reset-failed", name_of(store))


def is_active(store: Store) -> bool:
    """Whether the keeper runs or is being started."""
    done = _run("is-active", name_of(store))
    return done.stdout.decode(errors="replace").strip() in ("active", "activating", "reloading")


def remove(store: Store) -> None:
    """Stop the keeper with all that it runs, and remove the unit; silent when there is none."""
    name = name_of(store)
    path = os.path.join(UNITS, name)
    if os.geteuid() != 0 or not os.path.lexists(path):
        return
    _systemctl("stop", name, limit_s=STOP_S + LIMIT_S)
    _systemctl("disable", name)
    os.unlink(path)
    _sync_units()  # Else a power cut brings it back.
    _systemctl("daemon-reload")
    _run("reset-failed", name)


def forget_other_copies(store: Store) -> None:
    """Remove the copies of the agent that neither this process nor the unit runs from.

    None is removed while somebody asks, who may be installing one that the unit will name.
    """
    lock = take_lock(store.at(ASKING), wait=False)
    if lock is None:
        return
    try:
        keep = {os.path.basename(archive())}
        with contextlib.suppress(OSError), open(os.path.join(UNITS, name_of(store))) as file:
            text = file.read()
            keep |= {name for name in os.listdir(store.path) if '/%s"' % name in text}
        for name in os.listdir(store.path):
            if name.startswith("agent-") and name not in keep:
                os.unlink(store.at(name))
    finally:
        os.close(lock)


def forget_parts(store: Store) -> None:
    """Remove what was broken off while it was written: states, copies of the agent, the unit."""
    parts = [store.at(name) for name in os.listdir(store.path) if name.startswith(".")]
    for path in (*parts, os.path.join(UNITS, "." + name_of(store))):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _own_copy(store: Store) -> str:
    """The device's copy of this agent, which a power cut leaves whole or not at all."""
    with open(archive(), "rb") as file:
        content = file.read()
    path = store.at("agent-%s.pyz" % hashlib.sha256(content).hexdigest()[:12])
    if not os.path.exists(path):
        part = store.at(".agent-" + os.urandom(8).hex())
        _write(part, content, 0o600)
        os.rename(part, path)
        sync_folder(store.path)
    return path


def _write(path: str, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _quoted(word: str) -> str:
    word = word.replace("\\", "\\\\").replace('"', '\\"')
    return word.replace("%", "%%").replace("$", "$$")


def _systemctl(*arguments: str, limit_s: float = LIMIT_S) -> None:
    done = _run(*arguments, limit_s=limit_s)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()[-500:]
        found = "systemctl %s: exit %d: %s" % (" ".join(arguments), done.returncode, words)
        raise RefusedError("systemd", found)


def _run(*arguments: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["systemctl", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        words = "systemctl %s: %s" % (" ".join(arguments), error)
        raise RefusedError("systemd", words) from error
