"""Settings of projects that have a form of their own: what federated jobs may reach."""

import ipaddress
import re

MOST_EGRESS = 100
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
EGRESS_RULE = "is host:port or CIDR:port, IPv6 in brackets: api.example.com:443, 10.1.0.0/16:22"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def egress(text: str) -> str:
    """An address that federated jobs may reach, as it is stored: in lower case, as a network.

    Raises: ValueError, when it has another form, or names the machine itself, link-local or
    multicast addresses, behind which clouds have their metadata.
    """
    place, separator, port = text.strip().lower().rpartition(":")
    if not separator or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ValueError(EGRESS_RULE)
    bracketed = place.startswith("[") and place.endswith("]")
    network = _network(place[1:-1] if bracketed else place)
    if network is None:
        if bracketed or len(place) > 253 or not _HOST.fullmatch(place) or _looks_numeric(place):
            raise ValueError(EGRESS_RULE)
        if place == "localhost" or place.endswith(".localhost"):
            raise ValueError("names another machine than the one that the job runs on")
        return f"{place}:{port}"
    if bracketed is not (network.version == 6):
        raise ValueError(EGRESS_RULE)
    _check_reach(network)
    shown = str(network) if network.prefixlen < network.max_prefixlen else str(network[0])
    return f"[{shown}]:{port}" if bracketed else f"{shown}:{port}"


def _network(place: str) -> _Network | None:
    try:
        return ipaddress.ip_network(place)
    except ValueError:
        return None


def _looks_numeric(host: str) -> bool:
    """Whether a host is digits and dots alone, which some resolvers read as an address."""
    return host.replace(".", "").isdigit() or "0x" in host


_NEVER: tuple[_Network, ...] = (
    *map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")),
    *map(ipaddress.IPv6Network, ("::/128", "::1/128", "fe80::/10", "ff00::/8", "::ffff:0:0/96")),
)


def _check_reach(network: _Network) -> None:
    for never in _NEVER:
        if network.version == never.version and network.overlaps(never):
            raise ValueError(
                f"leaves out {never}: a job reaches neither its own machine, nor link-local or "
                "multicast addresses"
            )
