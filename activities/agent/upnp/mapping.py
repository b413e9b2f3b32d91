"""A port mapping: which external port it gets, and for how long it is made."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

from .exchange import Deadline, RouterError
from .gateway import CONFLICTS, PERMANENT_ONLY, SAME_PORTS, ActionError, Gateway

LIFETIME_S = 1200
"""A router that restarts forgets its mappings, and its address may be another one, so that a
machine is found again within half of this."""
FIRST_PORT, PORTS = 20000, 40000
MOST_TRIES = 12


class Mapping(NamedTuple):
    """A TCP port of the router that leads to this machine; lifetime 0: until it is deleted."""

    external_port: int
    lifetime_s: int


def usual_port(host_key: str) -> int:
    """The external port that a machine asks for first: each another, and always the same."""
    digest = hashlib.sha256(host_key.encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def add_mapping(
    gateway: Gateway, external_port: int, internal_port: int, deadline: Deadline
) -> Mapping:
    """Map a port of the router to ours: the external port, or another one if it is not free.

    A mapping that leads here already is prolonged.
    Raises: RouterError, when the router refuses.
    """
    port, lifetime_s = external_port, LIFETIME_S
    for _ in range(MOST_TRIES):
        client = gateway.client_of(port, deadline)
        # Some routers overwrite what leads to another machine, instead of refusing.
        if client not in (None, (gateway.own_address, str(internal_port))):
            port = _another_port()
            continue
        try:
            gateway.add(port, internal_port, lifetime_s, deadline)
            return Mapping(port, lifetime_s)
        except ActionError as error:
            if error.code == PERMANENT_ONLY and lifetime_s:
                lifetime_s = 0
            elif error.code == SAME_PORTS and port != internal_port:
                port = internal_port
            elif error.code in CONFLICTS:
                port = _another_port()
            else:
                raise
    raise RouterError("the router has no free port: %d were tried" % MOST_TRIES)


def _another_port() -> int:
    return FIRST_PORT + secrets.randbelow(PORTS)
