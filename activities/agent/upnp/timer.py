"""What has the keeper renew: a timer of systemd, else a line of cron, else a person."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from typing import List, Optional

from .mapping import LIFETIME_S

UNITS = "/etc/systemd/system"
SYSTEMD = "/run/systemd/system"
NAME = "baseload-upnp"
INTERVAL_S = LIFETIME_S // 2
LIMIT_S = 30
CRON_DAEMONS = ("cron", "crond")
SERVICE = """\
[Unit]
Description=Renews the port mapping by which baseload reaches this machine
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart=%(command)s
TimeoutStartSec=300
NoNewPrivileges=yes
CapabilityBoundingSet=
MemoryMax=128M
"""
TIMER = """\
[Unit]
Description=Renews the port mapping by which baseload reaches this machine

[Timer]
OnBootSec=20s
OnActiveSec=%(interval_s)ds
OnUnitActiveSec=%(interval_s)ds
AccuracySec=10s

[Install]
WantedBy=timers.target
"""


def name_of(join_file: str) -> str:
    """The name of the timer: of this join file, because in tests a machine may have several."""
    if join_file == "/etc/baseload/join":
        return NAME
    return "%s-%s" % (NAME, hashlib.sha256(join_file.encode()).hexdigest()[:8])


def start(name: str, command: List[str]) -> str:
    """Have this command run again and again; a sentence that says by what. A repeat is silent."""
    minutes = INTERVAL_S // 60
    if os.geteuid() == 0 and os.path.isdir(SYSTEMD):
        _write_unit(name + ".service", SERVICE % {"command": " ".join(map(_quoted, command))})
        _write_unit(name + ".timer", TIMER % {"interval_s": INTERVAL_S})
        if _run("systemctl", "daemon-reload") and _run(
            "systemctl", "enable", "--now", name + ".timer"
        ):
            return "%s.timer of systemd renews it every %d minutes" % (name, minutes)
    elif _has_cron() and _set_cron_line(name, _cron_line(name, command, minutes)):
        return "cron renews it every %d minutes" % minutes
    return (
        "neither systemd nor cron can renew it here: it ends in %d minutes, unless you have this "
        "run every %d minutes: %s" % (LIFETIME_S // 60, minutes, shlex.join(command))
    )


def end(name: str) -> None:
    """Have nothing run any more; silent where nothing does."""
    files = [os.path.join(UNITS, name + kind) for kind in (".timer", ".service")]
    if os.geteuid() == 0 and any(map(os.path.exists, files)):
        _run("systemctl", "disable", "--now", name + ".timer")
        for path in filter(os.path.exists, files):
            os.unlink(path)
        _run("systemctl", "daemon-reload")
    _set_cron_line(name, "")


def _write_unit(name: str, content: str) -> None:
    part = os.path.join(UNITS, "." + name)
    with open(part, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, os.path.join(UNITS, name))
    above = os.open(UNITS, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _quoted(word: str) -> str:
    word = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"%s"' % word.replace("%", "%%").replace("$", "$$")


def _has_cron() -> bool:
    """Whether a daemon of cron runs; a table without one says nothing."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid) as file:
                if file.read().strip() in CRON_DAEMONS:
                    return True
        except OSError:
            continue
    return False


def _cron_line(name: str, command: List[str], minutes: int) -> str:
    run = shlex.join(command).replace("%", "\\%")
    return "*/%d * * * * %s >/dev/null 2>&1 # %s\n" % (minutes, run, name)


def _set_cron_line(name: str, line: str) -> bool:
    """Put the line into this account's table instead of the one before. False: it cannot be."""
    found = _crontab("-l")
    before = found if found is not None else ""
    lines = before.splitlines(keepends=True)
    kept = [one for one in lines if not one.rstrip().endswith("# " + name)]
    after = "".join(kept) + line
    return after == before or _crontab("-", after) is not None


def _crontab(option: str, given: str = "") -> Optional[str]:
    """What crontab says; None: it fails, as it does for an account without a table."""
    try:
        done = subprocess.run(
            ["crontab", option],
            input=given,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _run(*command: str) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
