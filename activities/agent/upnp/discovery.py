"""The search for the router's gateway: SSDP, then the description that the router names.

Only the machine that is the way out of the network is asked. Any other may answer a search, and it
could name an external address as it likes.
Source: UPnP Device Architecture 1.1, §1.3 (search) and §2 (description).
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import time
import urllib.parse
from typing import Iterator, List, Optional

from .documents import parse
from .exchange import Deadline, Place, RouterError, ask, place_of
from .gateway import SERVICES, Gateway
from .routes import Way

GROUP = ("239.255.255.250", 1900)
TARGETS = (
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:device:InternetGatewayDevice:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
)
SEARCH = (
    "M-SEARCH * HTTP/1.1\r\nHOST: %s:%d\r\n"
    'MAN: "ssdp:discover"\r\nMX: 1\r\nST: %s\r\n\r\n'
)  # fmt: skip
SEND_AT_S = (0.0, 0.7, 1.4)
LISTEN_S = 3.0
MOST_ANSWERS = 64
MOST_DESCRIPTIONS = 4
MOST_CONNECTIONS = 8
MOST_BYTES = 4096


def find_gateway(way: Way, deadline: Deadline) -> Gateway:
    """The gateway of the router, one that is connected where it has several.

    Raises: RouterError, when no router answers, or none of its services has an address outside.
    """
    failure = None
    try:
        for description in _descriptions(way, deadline):
            try:
                return _connected(description, way, deadline)
            except RouterError as error:
                failure = error
    except RouterError as error:
        failure = failure or error
    if failure is not None:
        raise failure
    raise RouterError(
        "%s does not answer a search by UPnP, which may be switched off there"
        % ("the router" if way.router is None else "the router, %s," % way.router)
    )


def _connected(description: Place, way: Way, deadline: Deadline) -> Gateway:
    """The first gateway of a description with an address outside. Raises: RouterError."""
    for gateway in _gateways(description, way, deadline):
        with contextlib.suppress(RouterError):
            gateway.external_address(deadline)
            return gateway
    raise RouterError(
        "the router maps no ports, because it has no public address: it is not connected, or its "
        "provider shares one address among customers (CGNAT)"
    )


def _descriptions(way: Way, deadline: Deadline) -> Iterator[Place]:
    """Where the router says that its description is; each place once."""
    seen: List[Place] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.bind((way.own_address, 0))
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
            own = socket.inet_aton(way.own_address)
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        except OSError as error:
            raise RouterError("no search by UPnP: %s" % error) from None
        for location, router in _answers(asking, way, deadline):
            try:
                place = place_of(location, router)
            except RouterError:
                continue
            if place not in seen:
                seen.append(place)
                yield place
            if len(seen) >= MOST_DESCRIPTIONS:
                return


def _answers(asking: socket.socket, way: Way, deadline: Deadline) -> Iterator[List[str]]:
    """Of each answer of the router: the location, and the address that it came from."""
    began_s, sent = time.monotonic(), 0
    for _ in range(MOST_ANSWERS):
        while True:
            passed_s = time.monotonic() - began_s
            if sent < len(SEND_AT_S) and passed_s >= SEND_AT_S[sent]:
                _search(asking, way)
                sent += 1
                continue
            if passed_s >= LISTEN_S:
                return
            next_s = min((*SEND_AT_S[sent:], LISTEN_S))
            if select.select([asking], [], [], deadline.left_s(next_s - passed_s))[0]:
                break
        with contextlib.suppress(OSError):
            packet, source = asking.recvfrom(MOST_BYTES)
            location = _location(packet)
            if location is not None and _is_router(source[0], way):
                yield [location, source[0]]


def _search(asking: socket.socket, way: Way) -> None:
    """Ask the group, and the router itself, for networks that forward no multicast."""
    for host in (GROUP[0], way.router):
        for target in TARGETS:
            if host is not None:
                with contextlib.suppress(OSError):
                    packet = SEARCH % (host, GROUP[1], target)
                    asking.sendto(packet.encode("ascii"), (host, GROUP[1]))


def _is_router(source: str, way: Way) -> bool:
    if way.router is not None:
        return source == way.router
    return ipaddress.IPv4Address(source).is_private


def _location(packet: bytes) -> Optional[str]:
    lines = packet.decode("latin-1").split("\r\n")
    if not lines[0].startswith("HTTP/1.1 200"):
        return None
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "location":
            return value.strip()
    return None


def _gateways(description: Place, way: Way, deadline: Deadline) -> Iterator[Gateway]:
    """The services of the description that map ports, the newest kind first."""
    status, body = ask(description, "GET", b"", deadline)
    if status != 200:
        raise RouterError("the router has no description: status %d" % status)
    document = parse(body)
    here = "http://%s:%d%s" % description
    base = next((one.text.strip() for one in document.all("URLBase")), "") or here
    found = [service.texts() for service in document.all("service")]
    wanted = [one for kind in SERVICES for one in found if one.get("serviceType") == kind]
    for service in wanted[:MOST_CONNECTIONS]:
        try:
            control = urllib.parse.urljoin(base, service.get("controlURL", ""))
        except ValueError:
            raise RouterError("the router names an address that is none") from None
        place = place_of(control, description.host)
        yield Gateway(service["serviceType"], place, way.own_address)
    if not wanted:
        raise RouterError("the router maps no ports: its description has no such service")
