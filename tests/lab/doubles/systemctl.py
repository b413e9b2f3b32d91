#!/usr/bin/python3 -IS
"""Double of systemctl, for a machine whose init is not systemd: enables, starts and stops units.

A unit's command runs in a session of its own, and its main process counts for its state. It is not
started again when it has failed, nor at a boot. Unknown arguments fail.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
WANTED = UNITS / "multi-user.target.wants"
PIDS = Path("/run/systemd")
STOP_S = 90.0
POLL_S = 0.05


def main(action: str, *units: str) -> int:
    """The exit status."""
    if action in ("daemon-reload", "reset-failed"):
        return 0
    if action == "is-system-running":
        sys.stdout.write("offline\n")
        return 1
    (unit,) = units
    if action == "is-active":
        sys.stdout.write("active\n" if _pid(unit) else "inactive\n")
        return 0 if _pid(unit) else 3
    if action == "enable":
        WANTED.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (WANTED / unit).symlink_to(UNITS / unit)
    elif action == "disable":
        (WANTED / unit).unlink(missing_ok=True)
    elif action in ("start", "stop", "restart"):
        if action != "start":
            _stop(unit)
        if action != "stop" and not _pid(unit):
            _start(unit)
    else:
        sys.stderr.write(f"Unknown command verb {action}.\n")
        return 1
    return 0


def _start(unit: str) -> None:
    with Path(f"/var/log/{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            _command(unit, "ExecStart"),
            cwd="/",
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (PIDS / f"{unit}.pid").write_text(f"{process.pid}\n")


def _stop(unit: str) -> None:
    deadline = time.monotonic() + STOP_S
    while pid := _pid(unit):
        is_late = time.monotonic() > deadline
        os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        time.sleep(POLL_S)
    if after := _command(unit, "ExecStopPost"):
        subprocess.run(after, check=False)


def _pid(unit: str) -> int:
    """The main process of a unit; 0: it does not run."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((PIDS / f"{unit}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return pid if state not in "ZX" else 0
    return 0


def _command(unit: str, key: str) -> list[str]:
    lines = (UNITS / unit).read_text().splitlines()
    found = next((line for line in lines if line.startswith(f"{key}=")), "")
    words = shlex.split(found.partition("=")[2])
    return [word.replace("%%", "%").replace("$$", "$") for word in words]


sys.exit(main(*sys.argv[1:]))
