"""The parts of contents in a region's cache: stored there by the platform, see `contents/`."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Any

from ..contents.part_names import name_of
from ..errors import RefusedError
from ..folders import Folders
from .code import as_user
from .location import FOLDER, configuration_of
from .store import CHUNK_BYTES, PARTS, CacheStore

SILENCE_S = 60.0
"""After so long without a byte, the platform's connection counts as lost."""


def missing_parts(request: dict[str, Any]) -> dict[str, Any]:
    """Which parts this machine's cache does not have, by their numbers in `sha256s`.

    key: the key by which the cache names the content's parts.
    Raises: RefusedError `no-cache`.
    """
    store, _ = _store(request)
    names = [name_of(request["key"], sha256) for sha256 in request["sha256s"]]
    return {"missing": [at for at, name in enumerate(names) if not store.has(PARTS, name)]}


def keep_parts(request: dict[str, Any]) -> None:
    """Store parts from stdin, one after the other, replacing those that are there.

    parts: the hash and the bytes of each. Those before an interruption stay.
    Raises: RefusedError `no-cache`, `hash-mismatch`, `too-large`.
    """
    store, user = _store(request)
    for sha256, size in request["parts"]:
        with as_user(user):
            store.keep(PARTS, name_of(request["key"], sha256), _next_bytes(int(size)), sha256)


def _store(request: dict[str, Any]) -> tuple[CacheStore, str | None]:
    folders = Folders(request.get("root", ""))
    wanted = configuration_of(folders)
    if wanted is None:
        raise RefusedError("no-cache", "this machine serves no cache")
    store = CacheStore(os.path.join(folders.root, FOLDER), int(wanted["max_bytes"]))
    with as_user(wanted.get("user")):
        os.makedirs(os.path.join(store.folder, PARTS), mode=0o700, exist_ok=True)
    return store, wanted.get("user")


def _next_bytes(count: int) -> Iterator[bytes]:
    """The next bytes of stdin; fewer, when it ends."""
    while count:
        ready, _, _ = select.select([0], [], [], SILENCE_S)
        chunk = os.read(0, min(CHUNK_BYTES, count)) if ready else b""
        if not chunk:
            return
        count -= len(chunk)
        yield chunk
