"""The addresses that a source may have: public ones, and those of the setting `source_networks`.

A name is resolved once, and the address that was checked is the one that is connected.
"""

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore

from activities.artifacts.sources.pace import Pace, PacedStream
from activities.settings import cidrs_of, settings

Address = IPv4Address | IPv6Address


class SourceAddressRefusedError(OSError):
    """The error for a host without an address that may be connected.

    It reads the same for a name that nobody knows and for one that leads to the platform's own
    networks, so nobody learns which names there are.
    """


def permitted_address(host: str, port: int) -> str:
    """The first address of a source's host that may be connected. Blocking.

    Raises: SourceAddressRefusedError; OSError, when the name cannot be resolved now.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise OSError(f"{host}: its name cannot be resolved now") from error
        found = []
    except (ValueError, OverflowError):  # A name or a port that is none.
        found = []
    for each in found:
        if is_permitted(address := str(each[4][0])):
            return address
    raise SourceAddressRefusedError(f"{host}: has no public address, see BASELOAD_SOURCE_NETWORKS")


def is_permitted(text: str) -> bool:
    """Whether a source may be at this address."""
    address = ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if _is_in(address, settings().source_networks):
        return True
    is_ours = _is_in(address, settings().platform_networks) or _is_of_this_host(address)
    is_closed = any(address in network for network in (*_TRANSLATED, *_OF_SITES, *_CLOUDS))
    return address.is_global and not (address.is_multicast or is_ours or is_closed)


_TRANSLATED = tuple(
    ip_network(one) for one in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""IPv6 addresses behind which there is an IPv4 address, which may be any."""
_OF_SITES = (ip_network("fec0::/10"),)
"""What was for the inside of a site before fc00::/7 was, and still is in some."""
_CLOUDS = (ip_network("168.63.129.16/32"),)
"""Where a cloud, Azure, tells a machine its secrets at an address that is public by its number."""
_ANY_PORT = 9


def _is_in(address: Address, networks: str) -> bool:
    return any(address in ip_network(one) for one in cidrs_of(networks))


def _is_of_this_host(address: Address) -> bool:
    """Whether the address is one of this host, which then sends from that address to itself."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))  # Sends nothing.
            return ip_address(probe.getsockname()[0]) == address
        except OSError:  # There is no route to it.
            return False


class CheckedNetwork(httpcore.NetworkBackend):
    """The network as HTTP requests to others see it: they connect permitted addresses alone.

    watched: makes of a connection one whose rate is watched; None: as of a source that is read.
    """

    def __init__(
        self, watched: Callable[[httpcore.NetworkStream], httpcore.NetworkStream] | None = None
    ) -> None:
        self._network, pace = httpcore.SyncBackend(), Pace()
        self._watched = watched or (lambda stream: PacedStream(stream, pace))

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the checked address of a host.

        Raises: SourceAddressRefusedError; httpcore.ConnectError, also for an unknown name.
        """
        try:
            address = permitted_address(host, port)
        except SourceAddressRefusedError:
            raise
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        stream = self._network.connect_tcp(address, port, timeout, local_address, socket_options)
        return self._watched(stream)


def shown_url(url: str) -> str:
    """The URL without its query, in which a signed one has its signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
