"""What a federated run tries from inside; it writes what it has found to the file that is named."""

import contextlib
import ctypes
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

FOUND: dict[str, Any] = {"tcp": {}, "udp": {}, "icmp": [], "names": [], "abstract": "no"}
REQUEST = struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0)
LIBC = ctypes.CDLL(None, use_errno=True)


def asked_by(kind: str, place: str) -> str:
    """What is heard at a place by TCP or by UDP, or why nothing is."""
    host, _, port = place.rpartition(":")
    at = host.strip("[]"), int(port)
    try:
        if kind == "tcp":
            with socket.create_connection(at, 3) as one:
                return one.recv(9).decode() or "no"
        with socket.socket(family_of(host), socket.SOCK_DGRAM) as one:
            one.settimeout(0.3)
            one.sendto(b"x", at)
            return one.recv(9).decode()
    except OSError as error:
        return str(error)


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


for place in sys.argv[2:]:
    FOUND["tcp"][place] = asked_by("tcp", place)
    FOUND["udp"][place] = asked_by("udp", place)
    host = place.rpartition(":")[0]
    with contextlib.suppress(OSError), socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP
    ) as pinging:  # fmt: skip
        pinging.settimeout(0.3)
        pinging.sendto(REQUEST, (host, 0))
        pinging.recv(99)
        FOUND["icmp"] += [host] if host != "127.0.0.1" else []
for name in ("example.com", "localhost.localdomain", "metadata.google.internal"):
    with contextlib.suppress(OSError):
        FOUND["names"].append(socket.getaddrinfo(name, 80)[0][4][0])
with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as service:
    service.connect("\0baseload-service")
    FOUND["abstract"] = "hello"
FOUND["sockets"] = [
    str(path)
    for top in ("/run", "/var", "/tmp", "/home", "/root", "/srv", "/mnt", "/dev")
    for path in Path(top).rglob("*socket")
]
FOUND["devices"] = sorted(name for _, name in socket.if_nameindex())
FOUND["processes"] = [
    path.name
    for path in Path("/proc").iterdir()
    if path.name.isdigit() and path.stat().st_uid != os.getuid()
]
FOUND["root"] = sorted(path.name for path in Path("/").iterdir())
FOUND["dev"] = sorted(path.name for path in Path("/dev").iterdir())
FOUND["shared"] = sorted(path.name for path in Path("/dev/shm").iterdir())
FOUND["segments"] = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
FOUND["ptrace"] = [LIBC.ptrace(0, 0, 0, 0), ctypes.get_errno()]
FOUND["limits"] = Path("/proc/self/limits").read_text()
FOUND["filter"] = [
    line for line in Path("/proc/self/status").read_text().splitlines() if "Seccomp:" in line
]
FOUND["writable"] = []
for top in ("/", "/usr", "/etc", "/var", "/home", "/opt", "/sys", os.environ["BASELOAD_INPUT"]):
    with contextlib.suppress(OSError):
        Path(top, "written").touch()
        FOUND["writable"].append(top)
Path(sys.argv[1]).write_text(json.dumps(FOUND))
