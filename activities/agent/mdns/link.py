"""The region's link on this machine: its interface, its addresses, the sockets of mDNS there."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from typing import Any

from .packets import PORT

GROUP4, GROUP6 = "224.0.0.251", "ff02::fb"
UP, LOOPBACK, MULTICAST = 0x1, 0x8, 0x1000
GET_CONFIGURATION, GET_FLAGS, GET_NETMASK = 0x8912, 0x8913, 0x891B
IP_PKTINFO, IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 8, 49, 29
TEMPORARY, DEPRECATED, TENTATIVE, FAILED = 0x01, 0x20, 0x40, 0x08
GLOBAL_SCOPE = 0
MOST_ADDRESSES = 8
_ROUTES = "/proc/net/route"
_ADDRESSES6 = "/proc/net/if_inet6"


class NoLinkError(Exception):
    """This machine has no interface on which hostnames can be published."""


class Link:
    """An interface of this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = socket.if_nametoindex(name)

    def addresses4(self) -> list[str]:
        """Its IPv4 addresses."""
        found = [address for name, address in _addresses4() if name == self.name]
        return found[:MOST_ADDRESSES]

    def addresses6(self) -> list[str]:
        """Its IPv6 addresses that stay and that others may use without naming their interface."""
        found = []
        for index, scope, flags, address in _addresses6():
            leaves = flags & (TEMPORARY | DEPRECATED | TENTATIVE | FAILED)
            if index == self.index and scope == GLOBAL_SCOPE and not leaves:
                found.append(address)
        return found[:MOST_ADDRESSES]

    def has_ipv6(self) -> bool:
        return any(index == self.index for index, *_ in _addresses6())

    def holds(self, source: str) -> bool:
        """Whether an IPv4 address is of the network of this interface."""
        try:
            mask = _ask(self.name, GET_NETMASK)[20:24]
            own = self.addresses4()[0]
            network = ipaddress.ip_network("%s/%s" % (own, socket.inet_ntoa(mask)), strict=False)
            return ipaddress.ip_address(source) in network
        except (OSError, IndexError, ValueError):
            return False


def find_link(address: str) -> Link:
    """The interface of the region's link.

    address: of this machine for its peers; where no interface has it, as behind a translation of
    addresses, the interface of the platform's own connection counts, or of the default route.
    Raises: NoLinkError.
    """
    own = {found: name for name, found in _addresses4()}
    by = {found: index for index, _, _, found in _addresses6()}
    reached_at = os.environ.get("SSH_CONNECTION", "").split()[2:3]
    for given in (address, *reached_at):
        name = own.get(given)
        if name is None and given in by:
            name = socket.if_indextoname(by[given])
        if name is not None and _can_publish(name):
            return Link(name)
    name = _default_interface()
    if name is not None and _can_publish(name):
        return Link(name)
    raise NoLinkError("no interface of this machine has %s, and none has a default route" % address)


def open_sockets(link: Link) -> list[socket.socket]:
    """The sockets of mDNS on a link, beside those of other programs. Raises: OSError."""
    sockets = []
    with contextlib.ExitStack() as stack:
        if link.addresses4():
            sockets.append(stack.enter_context(_socket4(link)))
        if link.has_ipv6():
            with contextlib.suppress(OSError):  # IPv4 alone is enough.
                sockets.append(stack.enter_context(_socket6(link)))
        if not sockets:
            raise OSError("interface %s has no address" % link.name)
        stack.pop_all()
    return sockets


def group_of(one: socket.socket, link: Link) -> tuple[Any, ...]:
    """The address of all who speak mDNS on a link, for this socket."""
    if one.family == socket.AF_INET:
        return (GROUP4, PORT)
    return (GROUP6, PORT, 0, link.index)


def is_on_link(link: Link, source: str, notes: list[Any]) -> bool:
    """Whether a packet came from the link: to its group, or from an address of its network.

    notes: the ancillary data of the packet.
    """
    for level, kind, data in notes:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            index, _, to = struct.unpack("=i4s4s", data[:12])
            if index != link.index:
                return False
            return socket.inet_ntoa(to) == GROUP4 or link.holds(source)
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            to, index = data[:16], struct.unpack("=i", data[16:20])[0]
            is_group = to == socket.inet_pton(socket.AF_INET6, GROUP6)
            near = is_group or source.startswith("fe80:")
            return bool(index == link.index and near)
    return False


def _socket4(link: Link) -> socket.socket:
    one = _shared(socket.AF_INET, link)
    index = struct.pack("=i", link.index)
    anywhere = socket.inet_aton("0.0.0.0")
    one.bind(("", PORT))
    one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, anywhere + anywhere + index)
    membership = socket.inet_aton(GROUP4) + anywhere + index
    one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    for option, value in (
        (socket.IP_MULTICAST_TTL, 255),
        (socket.IP_TTL, 255),
        (socket.IP_MULTICAST_LOOP, 1),
        (IP_MULTICAST_ALL, 0),
        (IP_PKTINFO, 1),
    ):
        one.setsockopt(socket.IPPROTO_IP, option, value)
    return one


def _socket6(link: Link) -> socket.socket:
    one = _shared(socket.AF_INET6, link)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(("::", PORT))
    membership = socket.inet_pton(socket.AF_INET6, GROUP6) + struct.pack("=i", link.index)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
    for option, value in (
        (socket.IPV6_MULTICAST_IF, link.index),
        (socket.IPV6_MULTICAST_HOPS, 255),
        (socket.IPV6_UNICAST_HOPS, 255),
        (socket.IPV6_MULTICAST_LOOP, 1),
        (IPV6_MULTICAST_ALL, 0),
        (socket.IPV6_RECVPKTINFO, 1),
    ):
        one.setsockopt(socket.IPPROTO_IPV6, option, value)
    return one


def _shared(family: int, link: Link) -> socket.socket:
    """A socket that lets others have the port too, as every program that speaks mDNS does."""
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    with contextlib.suppress(OSError):  # Not root: the notes of each packet tell the interface.
        device = link.name.encode() + b"\0"
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    return one


def _can_publish(name: str) -> bool:
    """Whether an interface is up, carries multicast, and leads out of this machine."""
    try:
        (flags,) = struct.unpack("=H", _ask(name, GET_FLAGS)[16:18])
    except OSError:
        return False
    return bool(flags & UP and flags & MULTICAST and not flags & LOOPBACK)


def _ask(name: str, request: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return fcntl.ioctl(one, request, struct.pack("256s", name.encode()[:15]))


def _addresses4() -> list[tuple[str, str]]:
    """The IPv4 addresses of this machine, each behind the name of its interface."""
    room = array.array("B", bytes(64 << 10))
    place, size = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        answer = fcntl.ioctl(one, GET_CONFIGURATION, struct.pack("iP", size, place))
    used = struct.unpack("iP", answer)[0]
    step = 40 if struct.calcsize("P") == 8 else 32
    found = []
    content = room.tobytes()
    for at in range(0, used, step):
        name = content[at : at + 16].split(b"\0", 1)[0].decode().partition(":")[0]
        found.append((name, socket.inet_ntoa(content[at + 20 : at + 24])))
    return found


def _addresses6() -> list[tuple[int, int, int, str]]:
    """The IPv6 addresses of this machine: the interface's index, scope, flags, address."""
    found = []
    try:
        with open(_ADDRESSES6) as file:
            for line in file:
                digits, index, _, scope, flags, _ = line.split()
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
                found.append((int(index, 16), int(scope, 16), int(flags, 16), address))
    except (OSError, ValueError):
        return []
    return found


def _default_interface() -> str | None:
    """The interface of the default route with the lowest metric."""
    routes = []
    with contextlib.suppress(OSError), open(_ROUTES) as file:
        for line in file:
            fields = line.split()
            if fields[1:2] == ["00000000"]:
                routes.append((int(fields[6]), fields[0]))
    return min(routes)[1] if routes else None
