"""How a node asks its region's cache: over TLS, as one of the region's nodes.

A request of the platform names the cache: `cache` (host:port), and for a cache that speaks TLS
`cache_authority` (the certificate by which it is known) and `cache_token` (by which it knows the
node). A cache that an earlier release has prepared is asked without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import urllib.request
from http.client import HTTPException
from typing import Any

from ..folders import Folders
from ..loading import load
from .location import ANSWER_S

AUTHORITIES = "cache-authorities"
"""The folder of certificates for the programs that want a file: pip and podman."""


def ask(request: dict[str, Any], path: str, timeout_s: float, first_byte: int = 0) -> Any:
    """The cache's answer, directly, without the machine's proxy to the internet.

    Raises: OSError (`HTTPError` is one, and so is what TLS refuses), HTTPException.
    """
    authority, headers = request.get("cache_authority"), {}
    if first_byte:
        headers["Range"] = "bytes=%d-" % first_byte
    handlers: list[Any] = [urllib.request.ProxyHandler({})]
    if authority:
        handlers.append(urllib.request.HTTPSHandler(context=_context(authority)))
        if request.get("cache_token"):
            headers["Authorization"] = "Bearer " + request["cache_token"]
    scheme = "https" if authority else "http"
    url = "%s://%s%s" % (scheme, request["cache"], path)
    opener = urllib.request.build_opener(*handlers)
    return opener.open(urllib.request.Request(url, headers=headers), timeout=timeout_s)


def has_same_index(request: dict[str, Any]) -> bool:
    """Whether the cache reads the package index that this machine's owner has set up here."""
    own = hashlib.sha256(load("cache.service:index_of_machine")().encode()).hexdigest()
    try:
        with ask(request, "/index", ANSWER_S) as answer:
            found: bytes = answer.read(len(own))
    except (OSError, HTTPException):
        return False
    return found == own.encode()


def _context(authority: str) -> ssl.SSLContext:
    """Trust in nobody but the region's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority)
    return context


def authority_file(folders: Folders, authority: str) -> str:
    """A file with the region's authority, which vouches for private addresses alone, and with
    everybody that this machine trusts otherwise: for a program that takes one file of them."""
    others = ssl.get_default_verify_paths().cafile
    content = authority.encode() + b"\n"
    if others:
        with contextlib.suppress(OSError), open(others, "rb") as file:
            content += file.read()
    folder = os.path.join(folders.root, AUTHORITIES)
    path = os.path.join(folder, hashlib.sha256(content).hexdigest()[:16], "ca.crt")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        part = "%s.%d" % (path, os.getpid())
        with open(part, "wb") as file:
            file.write(content)
        os.chmod(part, 0o644)
        os.rename(part, path)
    return path
