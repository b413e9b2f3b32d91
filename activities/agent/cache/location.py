"""The files of a region's cache on the machine that serves it, and whether a cache answers."""

from __future__ import annotations

import os
import socket
from typing import Any, NamedTuple

from ..folders import Folders, read_json

FOLDER = "cache"
LOCK = "cache.lock"
"""The lock that the server holds until it ends."""
CONFIGURATION = "cache.json"
"""The configuration of the server: host, port, index_url, max_bytes, user; with TLS, hashes of its
identity and of the token."""
IDENTITY = "cache-identity.pem"
"""The certificate and the key of the server, for root alone."""
SERVING = "cache-serving.json"
"""The running server: host, port, pid, start_ticks."""
ANSWER_S = 3.0


class PackageCache(NamedTuple):
    """The region's cache as pip uses it."""

    address: str
    """host:port."""
    authorities: str | None
    """The file of those who may vouch for it; None: it does not speak TLS."""


def configuration_of(folders: Folders) -> dict[str, Any] | None:
    """The configuration of this machine's cache; None when this machine serves no cache."""
    return read_json(os.path.join(folders.root, CONFIGURATION))


def answers(cache: str) -> bool:
    """Whether a server accepts connections at that host:port within `ANSWER_S`."""
    host, _, port = cache.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except OSError:
        return False
    return True
