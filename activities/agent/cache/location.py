"""Where a region's cache is on the machine that serves it, and whether one answers."""

from __future__ import annotations

import os
import socket
from typing import Any

from ..folders import Folders, read_json

FOLDER = "cache"
LOCK = "cache.lock"
"""Held by the server for its life."""
WANTED = "cache.json"
"""What is to be served: host, port, index_url, max_bytes, user."""
SERVING = "cache-serving.json"
"""What is served: host, port, pid, start_ticks."""
ANSWER_S = 3.0


def wanted_of(folders: Folders) -> dict[str, Any] | None:
    """What this machine is to serve; None: it serves no cache."""
    return read_json(os.path.join(folders.root, WANTED))


def answers(cache: str) -> bool:
    """Whether something takes connections at that host:port, within a short time."""
    host, _, port = cache.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except OSError:
        return False
    return True
