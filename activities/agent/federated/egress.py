"""The egress of a federated run: all that it may reach, each `host:port` or `CIDR:port`.

The run has a network of its own that leads nowhere. What it may reach has an address there all the
same, at which our forwarder takes its connections: a network has its own addresses, and a host that
is named has one of `NAMED`. So the run needs no name server, and a name whose address changes is
followed.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import List, NamedTuple, Union

from ..errors import RefusedError
from ..host import network_rules

NAMED = ipaddress.ip_network("198.18.0.0/15")
"""Addresses for measurements in a laboratory (RFC 2544), which no network outside has."""
MOST_PLACES = 256
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
CLOSED = [ipaddress.ip_network(one) for one in network_rules.LINK_LOCAL]


class Place(NamedTuple):
    """One thing that a run may reach."""

    network: Network
    """Where the run finds it."""
    port: int
    host: str | None
    """The name of the host that is meant; None: the addresses of `network` themselves."""


def places(egress: list[str]) -> list[Place]:
    """What a run may reach. Raises: RefusedError `bad-egress`, which names what is no place."""
    if len(egress) > MOST_PLACES:
        words = "federated_egress: asked %d places, %d are possible"
        raise RefusedError("bad-egress", words % (len(egress), MOST_PLACES))
    found: List[Place] = []
    named: dict[str, Network] = {}
    for text in egress:
        host, _, port = text.rpartition(":")
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise RefusedError("bad-egress", "federated_egress %r: want host:port" % text)
        network = _network(host)
        if network is not None:
            found.append(Place(network, int(port), None))
        elif HOST.match(host):
            first = NAMED.network_address + 1 + len(named)
            named.setdefault(host.lower(), ipaddress.ip_network(first))
            found.append(Place(named[host.lower()], int(port), host))
        else:
            raise RefusedError("bad-egress", "federated_egress %r: is no host or network" % text)
    return found


def _network(host: str) -> Network | None:
    """The network of an address or a CIDR, IPv6 with or without brackets; None: it is a name."""
    try:
        return ipaddress.ip_network(host.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return None


def hosts_file(found: list[Place]) -> str:
    """What /etc/hosts of the run says: itself, and the hosts that it may reach."""
    lines = ["127.0.0.1 localhost\n", "::1 localhost\n"]
    names = {one.host: one.network for one in found if one.host is not None}
    lines += ["%s %s\n" % (network.network_address, name) for name, network in names.items()]
    return "".join(lines)


def place_of(found: list[Place], address: str, port: int) -> Place | None:
    """The place that is meant by what a run connects to; None: it may not be reached."""
    asked = plain(address)
    for one in found:
        if one.port == port and one.network.version == asked.version and asked in one.network:
            return one
    return None


def plain(address: str) -> Address:
    """An address; one of IPv4 that is written as one of IPv6 is one of IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def why_closed(address: str) -> str | None:
    """Why no federated run reaches an address, whatever its egress says; None: it may.

    No machine gives its secrets, or its own services, to another's model.
    """
    asked = plain(address)
    if asked.is_loopback or asked.is_unspecified or asked.is_multicast:
        return "is of this machine itself"
    if any(one.version == asked.version and asked in one for one in CLOSED):
        return "is where clouds tell a machine its secrets"
    family = socket.AF_INET if asked.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((str(asked), 0))
    except OSError:
        return None
    return "is an address of this machine itself"
