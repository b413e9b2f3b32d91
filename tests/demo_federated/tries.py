"""What the federated job tries from inside, before it reads; part of the code that is sent.

`python3 tries.py HOST:PORT …` leaves `tries.json` in $BASELOAD_OUTPUT: what was heard at each place
by TCP, what by UDP, whether a name was resolved, and where a file could be written.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

LIMIT_S = 2.0
NAME = "example.com"


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
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", (host, port))
            return "sent"
    except OSError as error:
        return str(error)


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
    pairs = [(place, place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in places]
    found["tcp"] = {place: by_tcp(host, port) for place, host, port in pairs}
    found["udp"] = {place: by_udp(host, port) for place, host, port in pairs}
    folders = (os.environ["BASELOAD_INPUT"], os.environ["BASELOAD_MODEL"], "/etc")
    found["files"] = {folder: written(folder) for folder in folders}
    Path(os.environ["BASELOAD_OUTPUT"], "tries.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
