"""The networks in which nodes look for datastores, by the settings and by where this process runs.

Whoever registers a datastore chooses its address, and the node connects it: not the control plane,
which a node may reach where others cannot.
"""

import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from activities.settings import cidrs_of, settings

FIB_TRIE, IF_INET6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")


def networks_for_agent() -> dict[str, Any]:
    """What a request to the agent says of networks. Blocking.

    open: by the setting `datastore_networks`; closed: by the setting `platform_networks`, the
    addresses of this host and those of Temporal.
    """
    closed = [*cidrs_of(settings().platform_networks), *own_addresses(), *_temporal_addresses()]
    return {"open": cidrs_of(settings().datastore_networks), "closed": sorted(set(closed))}


def own_addresses() -> list[str]:
    """The addresses of this host but for loopback and link-local ones, by Linux's lists."""
    found = []
    last = ""
    for line in _lines(FIB_TRIE):
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif "host" in words and "LOCAL" in words:
            found.append(last)
    for line in _lines(IF_INET6):
        digits = line.split()[0]
        found.append(":".join(digits[at : at + 4] for at in range(0, 32, 4)))
    addresses = [ip_address(one) for one in found]
    return [str(one) for one in addresses if not (one.is_loopback or one.is_link_local)]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # Another system than Linux, or no IPv6.
        return []


def _temporal_addresses() -> list[str]:
    host = settings().temporal_address.rpartition(":")[0].strip("[]")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # A name that does not resolve here.
        return []
    return [str(place[0]).partition("%")[0] for *_, place in found]
