"""The SSH server of this session: the path of its configuration, and its reload.

A session survives a restart of the server, and then has another parent, so the server is found by
its listening socket.
"""

from __future__ import annotations

import os
import signal

from . import processes

PID_FILE = "/run/sshd.pid"
NAME = "sshd"
LISTENS = "0A"
"""As /proc/net/tcp has it."""


def listener() -> int | None:
    """The sshd that listens at the port through which this session came; None: there is none."""
    port = _own_port()
    sockets = _listening(port) if port is not None else set()
    holders = {
        process.pid: process.parent
        for process in processes.everything()
        if _is_sshd(process.pid) and _holds(process.pid, sockets)
    }
    # A session that has just been forked holds them too, for a moment.
    servers = [pid for pid, parent in holders.items() if parent not in holders]
    return servers[0] if servers else _noted()


def config_of(server: int | None, usual: str) -> str:
    """The configuration file that it was started with."""
    words = (_read("/proc/%d/cmdline" % server) or "") if server else ""
    parts = words.replace("\0", " ").split()
    if "-f" in parts[:-1]:
        return parts[parts.index("-f") + 1]
    return usual


def reload(server: int | None) -> None:
    """HUP makes it read its configuration anew and leaves open sessions alone.

    Where none listens, each connection has a server of its own, which reads it anyway.
    """
    if server is not None:
        os.kill(server, signal.SIGHUP)


def _own_port() -> int | None:
    words = os.environ.get("SSH_CONNECTION", "").split()
    return int(words[3]) if len(words) == 4 and words[3].isdigit() else None


def _listening(port: int) -> set[str]:
    """What the sockets that listen there are called among a process's open files."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (_read(table) or "").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                found.add("socket:[%s]" % fields[9])
    return found


def _holds(pid: int, sockets: set[str]) -> bool:
    folder = "/proc/%d/fd" % pid
    try:
        return any(
            os.readlink(os.path.join(folder, name)) in sockets for name in os.listdir(folder)
        )
    except OSError:  # It has ended, or is another user's.
        return False


def _noted() -> int | None:
    """The server as it noted itself, if that is still one."""
    text = (_read(PID_FILE) or "").strip()
    return int(text) if text.isdigit() and _is_sshd(int(text)) else None


def _is_sshd(pid: int) -> bool:
    return (_read("/proc/%d/comm" % pid) or "").strip() == NAME


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None
