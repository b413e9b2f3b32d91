"""The rules for the hostnames and ports of reservations."""

import re

DOMAIN = "local"
HOSTNAME_RULE = (
    "is one label in lower case: a-z, 0-9 and - inside, 1 to 63 characters; .local is added to it"
)
LOWEST_PORT, HIGHEST_PORT = 1024, 65_535
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NOT_TAKEN = frozenset({"localhost", DOMAIN, "wpad", "isatap"})
"""The last two are names by which machines look for a proxy or a router that nobody has named to
them, and then send it what they send."""
PLATFORM_PORTS = {
    5353: "mDNS",
    7233: "Temporal",
    8233: "the Temporal UI",
    8700: "the API",
    8710: "the region's cache",
}
"""The ports at which the platform itself may listen on a machine of a region."""


def hostname_mistake(hostname: str) -> str | None:
    """The rule that a hostname breaks; None: none."""
    if _LABEL.fullmatch(hostname) is None:
        return HOSTNAME_RULE
    return f"is not {hostname}, which has a meaning of its own" if hostname in _NOT_TAKEN else None


def port_mistake(port: int) -> str | None:
    """The rule that a port in these bounds breaks as that of a reservation; None: none."""
    if port in PLATFORM_PORTS:
        return f"is not {port}, which is the port of {PLATFORM_PORTS[port]}"
    return None
