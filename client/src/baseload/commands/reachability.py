"""At which address other machines reach an API that this machine reaches at its loopback."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

LIMIT_S = 2.0
# Of the addresses that are only documented: nothing is sent there, the system only picks a route.
FAR = ("192.0.2.1", 9)


def reachable_url(url: str) -> str:
    """The URL with this machine's own address in its network, where it names the loopback."""
    parts = urlsplit(url)
    own = _own_address()
    if own is None or not _is_loopback(parts.hostname or ""):
        return url
    return parts._replace(netloc=f"{own}:{parts.port or _default_port(parts.scheme)}").geturl()


def answers(url: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or _default_port(parts.scheme))
    try:
        with socket.create_connection(place, LIMIT_S):
            return True
    except OSError:
        return False


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _own_address() -> str | None:
    """The address by which this machine sends into its network; None: it is in none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(FAR)
            found = str(probe.getsockname()[0])
    except OSError:
        return None
    return None if _is_loopback(found) else found


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
