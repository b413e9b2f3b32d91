"""The process that is one local machine: it begins with it, and everything on it ends with it.

`python -m activities.providers.local.server FOLDER` runs the SSH server of that folder. What is
begun over SSH belongs to this process, also what has left its parents, so that all of it is ended
when the machine's lifetime is over, or at SIGTERM. Then the folder is removed.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from activities.providers.local.processes import POLL_S, end_descendants
from activities.providers.local.records import MachineFolder

SSH_SERVER = "workers.embedded_sshd"
PR_SET_CHILD_SUBREAPER = 36
END_LIMIT_S = 3.0
BUSY = 75


def main(path: Path) -> int:
    """Serve a machine to its end; a second process for one machine ends at once."""
    machine = MachineFolder(path)
    lock = (path / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return BUSY
    asked = machine.asked
    if asked is None:
        return 0
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.begin)
    _adopt_orphans()
    machine.write_server(os.getpid())
    server = subprocess.Popen(
        [sys.executable, "-m", SSH_SERVER, str(machine.sshd)], stdin=subprocess.DEVNULL
    )
    while not ending.has_begun and datetime.now(UTC) < asked.ends_at and server.poll() is None:
        _reap_others(server.pid)
        time.sleep(POLL_S)
    end_descendants(os.getpid(), END_LIMIT_S)
    machine.remove()
    return 0


class _Ending:
    """Whether the end of the machine was asked for."""

    def __init__(self) -> None:
        self.has_begun = False

    def begin(self, *_: object) -> None:
        self.has_begun = True


def _adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl: cannot adopt orphaned processes")


def _reap_others(server_pid: int) -> None:
    """Take the exit statuses of orphans, and leave that of the SSH server to its own object."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == server_pid:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
