"""The way from this machine to the platform: its own address, its router, and who needs none."""

from __future__ import annotations

import ipaddress
import socket
import struct
import urllib.parse
from typing import NamedTuple, Optional

ROUTES = "/proc/net/route"
UP, GATEWAY = 1, 2


class Way(NamedTuple):
    """This machine's address on the way to the API, the API's, and the router between them.

    router: None where the kernel does not say.
    """

    own_address: str
    api_address: str
    router: Optional[str]


def way_to(api: str) -> Way:
    """The way to the API of this URL. Raises: OSError, ValueError, when there is none."""
    url = urllib.parse.urlsplit(api)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((url.hostname or "", url.port or 80))
        own, there = probe.getsockname()[0], probe.getpeername()[0]
    return Way(own, there, _router_to(there))


def why_unmapped(way: Way) -> Optional[str]:
    """Why no port has to be mapped on a router; None: one has to be."""
    if not ipaddress.IPv4Address(way.api_address).is_global:
        return "the platform, at %s, is in a private network that this machine reaches it by" % (
            way.api_address
        )
    if ipaddress.IPv4Address(way.own_address).is_global:
        return "this machine has a public address of its own, %s" % way.own_address
    return None


def _router_to(address: str) -> Optional[str]:
    """The router of the kernel's most specific route to the address."""
    wanted = _number(address)
    found = []
    try:
        with open(ROUTES) as file:
            lines = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return None
    for words in lines:
        target, router, flags, mask = (int(words[index], 16) for index in (1, 2, 3, 7))
        # The kernel writes these as numbers of the machine's own byte order.
        if flags & UP and wanted & mask == target:
            specific = (bin(mask).count("1"), -int(words[6]))
            found.append((specific, router if flags & GATEWAY else 0))
    chosen = max(found)[1] if found else 0
    return socket.inet_ntoa(struct.pack("=I", chosen)) if chosen else None


def _number(address: str) -> int:
    number: int = struct.unpack("=I", socket.inet_aton(address))[0]
    return number
