"""What is asked of the kernel for a network namespace, without the program `ip`."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

from .egress import Network

CLONE_NEWIPC, CLONE_NEWNET = 0x08000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
LOOPBACK = 1
"""The index of `lo`, the only device that a new network namespace has."""
NEWROUTE, REQUEST_ACK_CREATE = 24, 0x1 | 0x4 | 0x400
RTN_LOCAL, TABLE_LOCAL, SCOPE_HOST, PROTO_STATIC = 2, 255, 254, 4
RTA_DST, RTA_OIF = 1, 4
ERROR = 2


def enter(namespace: int, kind: int) -> None:
    """Enter the namespace of an open descriptor. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def raise_loopback() -> None:
    """Let the loopback of this network namespace carry packets. Raises: OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asked = struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(asking, SIOCSIFFLAGS, asked)


def make_local(network: Network) -> None:
    """Let this network namespace take all addresses of a network as its own. Raises: OSError."""
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    head = struct.pack(
        "=BBBBBBBBI",
        *(family, network.prefixlen, 0, 0, TABLE_LOCAL, PROTO_STATIC, SCOPE_HOST, RTN_LOCAL, 0),
    )
    packed = network.network_address.packed
    body = head + struct.pack("=HH", 4 + len(packed), RTA_DST) + packed
    body += struct.pack("=HHI", 8, RTA_OIF, LOOPBACK)
    message = struct.pack("=IHHII", 16 + len(body), NEWROUTE, REQUEST_ACK_CREATE, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asking:
        asking.settimeout(10.0)
        asking.send(message)
        answer = asking.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    (number,) = struct.unpack_from("=i", answer, 16)
    if kind == ERROR and number:
        raise OSError(-number, "the address %s: %s" % (network, os.strerror(-number)))
