"""The addresses at which a datastore may be.

A name is resolved once, and the address that was checked is the one that is connected. Whoever
registers a datastore chooses its address, so it must not lead to services of this machine, of its
cloud, of the control plane, or, on a machine that somebody rents out, of the rest of its network;
and no failure says which of these it was, nor whether anything answers there.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Iterable, Union

from .child import unreached
from .share import Share

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
NEVER = (
    "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "100.100.100.200/32",
    "168.63.129.16/32",
    "224.0.0.0/4", "240.0.0.0/4",
    "::/96", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::/32",
    "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32",
)  # fmt: skip
"""Loopback, link-local, multicast and reserved addresses, those at which clouds tell a machine its
secrets, and IPv6 addresses behind which there is an IPv4 address, which may be any."""
PRIVATE = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7",
)  # fmt: skip
"""The networks of whoever owns the machine."""
_ANY_PORT = 9


def pinned(share: Share) -> Share:
    """The datastore with the address of its host, which is used from now on.

    Raises: RefusedError `datastore-away`, with the words of every server that does not answer.
    """
    return share._replace(address=permitted_address(share))


def permitted_address(share: Share) -> str:
    """The first address of the host at which a datastore may be. Blocks.

    Raises: RefusedError `datastore-away`.
    """
    try:
        found = socket.getaddrinfo(share.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise unreached(share.place) from None
    networks = share.networks or {}
    for _, _, _, _, place in found:
        address = str(place[0])
        if is_permitted(address, networks):
            return address
    raise unreached(share.place)


def is_permitted(text: str, networks: dict[str, Any]) -> bool:
    """Whether a datastore may be at this address.

    networks: `open`, which are permitted whatever else is said; `closed`, those of the control
    plane; `is_public_only`, whether private networks are closed too, with this machine itself.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if _is_in(address, networks.get("open") or ()):
        return True
    if _is_in(address, NEVER) or _is_in(address, networks.get("closed") or ()):
        return False
    if networks.get("is_public_only"):
        return not (_is_in(address, PRIVATE) or _is_of_this_machine(address))
    return True


def _is_in(address: Address, networks: Iterable[str]) -> bool:
    found = (ipaddress.ip_network(one, strict=False) for one in networks)
    return any(one.version == address.version and address in one for one in found)


def _is_of_this_machine(address: Address) -> bool:
    """Whether the address is one of this machine, which sends from that address to itself."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))  # Sends nothing.
            return str(ipaddress.ip_address(probe.getsockname()[0])) == str(address)
        except OSError:  # There is no route to it.
            return False
