"""Checks of ports: whether a program answers, and which process holds a port."""

import http.client
import os
import random
import socket
from contextlib import suppress
from pathlib import Path

from workers.runner.stack import Listening, Probe

FREE_PORTS = range(20_000, 32_768)
"""Ports below the range from which the kernel takes ports for outgoing connections."""
PORTS_TRIED = 100


def answers(probe: Probe, limit_s: float = 2.0) -> bool:
    """Whether the program behind the probe is ready now."""
    if probe.kind == "port":
        return _connects(probe.host, probe.port, limit_s)
    connection = http.client.HTTPConnection(probe.host, probe.port, timeout=limit_s)
    try:
        connection.request("GET", probe.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def taken(listening: Listening) -> str | None:
    """The line that says who holds an address that we need, and what to do; None if it is free."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((listening.host, listening.port))
        except OSError as error:
            return (
                f"{listening.purpose} cannot have {listening.host}:{listening.port}: "
                f"{error.strerror}{_holder(listening.port)}. Set {listening.setting}"
            )
    return None


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now. Raises: OSError, when none of `PORTS_TRIED` ports is free."""
    for port in random.sample(FREE_PORTS, PORTS_TRIED):
        if is_free(host, port):
            return port
    raise OSError(f"{host}: none of {PORTS_TRIED} ports tried of {FREE_PORTS} is free")


def is_free(host: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


def _connects(host: str, port: int, limit_s: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout=limit_s):
            return True
    except OSError:
        return False


def _holder(port: int) -> str:
    """The text ` (held by NAME, pid N)`; empty if the process may not be seen."""
    inodes = _listening_inodes(port)
    for folder in Path("/proc").iterdir():
        if not inodes or not folder.name.isdigit():
            continue
        with suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                if str(descriptor.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                    name = (folder / "comm").read_text().strip()
                    return f" (held by {name}, pid {folder.name}{_other_user(folder)})"
    return ""


def _other_user(folder: Path) -> str:
    owner = folder.stat().st_uid
    return "" if owner == os.getuid() else f", user {owner}"


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
