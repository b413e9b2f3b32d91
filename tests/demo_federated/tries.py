"""What the federated job tries from inside, before it reads; part of the code that is sent.

`python3 tries.py HOST:PORT …` leaves `tries.json` in $BASELOAD_OUTPUT: what was heard at each place
by TCP, what by UDP, who answered a ping, whether a name was resolved, where a file could be
written, and what of the machine's other jobs was found.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from pathlib import Path

LIMIT_S = 2.0
NAME = "example.com"
NEIGHBOUR = "\0baseload-neighbour"
"""The abstract socket of another job."""
PING = struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0)


def by_tcp(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), LIMIT_S) as one:
            one.settimeout(LIMIT_S)
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return "heard" if one.recv(4) else "closed at once"
    except OSError as error:
        return str(error)


def by_udp(host: str, port: int) -> str:
    try:
        with socket.socket(family_of(host), socket.SOCK_DGRAM) as one:
            one.sendto(b"x", (host, port))
            return "sent"
    except OSError as error:
        return str(error)


def by_ping(host: str) -> str:
    if family_of(host) == socket.AF_INET6:
        return "not tried"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as one:
            one.settimeout(LIMIT_S)
            one.sendto(PING, (host, 0))
            return "heard" if one.recv(99) else "closed at once"
    except OSError as error:
        return str(error)


def family_of(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def of_others() -> list[str]:
    """What is seen of other jobs: processes, shared memory and an abstract socket."""
    found = ["process " + path.name for path in Path("/proc").iterdir() if is_anothers(path)]
    found += [str(path) for path in Path("/dev/shm").iterdir()]
    found += Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    with socket.socket(socket.AF_UNIX) as one:
        if one.connect_ex(NEIGHBOUR) == 0:
            found.append("socket " + NEIGHBOUR[1:])
    return found


def is_anothers(path: Path) -> bool:
    try:
        return path.name.isdigit() and path.stat().st_uid != os.getuid()
    except OSError:  # The process has just ended.
        return False


def resolved() -> str:
    try:
        return str(socket.getaddrinfo(NAME, 80)[0][4][0])
    except OSError as error:
        return str(error)


def written(folder: str) -> str:
    try:
        Path(folder, "copy-of-the-model").write_text("x")
    except OSError as error:
        return str(error)
    return "written"


def main(places: list[str]) -> None:
    """Try each place, and write what has come of it."""
    found = {"tcp": {}, "udp": {}, "name": resolved(), "files": {}}  # type: dict[str, object]
    split = [(place, *place.rpartition(":")[::2]) for place in places]
    pairs = [(place, host.strip("[]"), int(port)) for place, host, port in split]
    found["tcp"] = {place: by_tcp(host, port) for place, host, port in pairs}
    found["udp"] = {place: by_udp(host, port) for place, host, port in pairs}
    found["ping"] = {host: by_ping(host) for host in {host for _, host, _ in pairs}}
    found["others"] = of_others()
    folders = (os.environ["BASELOAD_INPUT"], os.environ["BASELOAD_MODEL"], "/etc")
    found["files"] = {folder: written(folder) for folder in folders}
    Path(os.environ["BASELOAD_OUTPUT"], "tries.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
