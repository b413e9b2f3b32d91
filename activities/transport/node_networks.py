"""The networks in which nodes may be: an address that a person gives is connected there alone.

The name of a node is resolved once, and the address that was checked is the one that is connected.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from activities.settings import cidrs_of, settings

Address = IPv4Address | IPv6Address
_ANY_PORT = 9


class AddressRefusedError(OSError):
    """The error for a host whose addresses are all refused."""


async def permitted_address(host: str, port: int) -> str:
    """The first address of the host at which a node may be.

    Raises: OSError, when the name is not known; AddressRefusedError, when every address is refused.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    for address in addresses:
        if is_permitted(address):
            return address
    raise AddressRefusedError(
        f"{host}: {', '.join(addresses)}: refused, see BASELOAD_NODE_NETWORKS"
    )


def is_permitted(text: str) -> bool:
    """Whether a node may be at this address, by the settings `node_networks` and
    `platform_networks`."""
    address = ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    if _is_in(address, settings().node_networks):
        return True
    is_special = (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )
    is_ours = _is_in(address, settings().platform_networks) or _is_of_this_host(address)
    return not (is_special or is_ours)


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
