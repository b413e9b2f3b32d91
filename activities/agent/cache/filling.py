"""The cache of a storage node, filled from that of the node whose place it takes.

What was used last comes first, with the time of its last use, so that what jobs need now is pinned
here as well. A file whose name is its hash is checked; a part is checked by each node that gets it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

from ..errors import RefusedError
from ..folders import SHA256, Folders
from ..host import disk
from .client import ask
from .code import as_user
from .location import FOLDER, configuration_of
from .store import CHUNK_BYTES, KINDS, LEAST_FREE_BYTES, PARTS, CacheStore

READ_S = 30.0
LEFT_OUT = (404, "hash-mismatch")
"""What the other cache has removed since, or holds damaged: it comes anew when a job needs it."""
MOST_LISTING_BYTES = 256 << 20


def fill_cache(request: dict[str, Any]) -> dict[str, Any]:
    """Fetch what another cache of the region holds and this one lacks, for at most `limit_s`.

    A repeat goes on after the last whole file.
    Answers `files`, `bytes`, `left_files` for which there is room, and `reason`, why they could not
    be had; what is damaged there is left out.
    Raises: RefusedError `no-cache`.
    """
    folders = Folders(request.get("root", ""))
    wanted = configuration_of(folders)
    if wanted is None:
        raise RefusedError("no-cache", "this machine serves no cache")
    store = CacheStore(os.path.join(folders.root, FOLDER), int(wanted["max_bytes"]))
    until = time.monotonic() + float(request["limit_s"])
    answer: dict[str, Any] = {"files": 0, "bytes": 0, "left_files": 0, "reason": ""}
    with as_user(wanted.get("user")):
        store.make()
        try:
            lacking = _lacking(request, store)
        except (OSError, HTTPException, ValueError) as error:
            return dict(answer, left_files=1, reason=str(error))
        for at, (kind, name, ago_s) in enumerate(lacking):
            if time.monotonic() > until:
                answer["left_files"] = len(lacking) - at
                break
            try:
                answer["bytes"] += _fetch(request, store, kind, name)
                store.set_used(kind, name, ago_s)
                answer["files"] += 1
            except (OSError, HTTPException, RefusedError) as error:
                words = "%s/%s: %s" % (kind, name, error)
                if getattr(error, "code", None) in LEFT_OUT:
                    sys.stderr.write("left out: %s\n" % words)
                    continue
                return dict(answer, left_files=len(lacking) - at, reason=words)
    return answer


def _lacking(request: dict[str, Any], store: CacheStore) -> list[tuple[str, str, float]]:
    """What the other cache holds, this one lacks and has room for, the last used first."""
    with ask(request, "/kept", READ_S) as answer:
        listing = json.loads(answer.read(MOST_LISTING_BYTES).decode())
    # On a disk that is full of something else, each fill would bring what the last one let go.
    free = max(0, disk.free_bytes(store.folder) - LEAST_FREE_BYTES)
    found, room = [], min(store.max_bytes, store.size() + free)
    for kind, name, size, ago_s in listing:
        if kind not in KINDS or not isinstance(name, str) or not SHA256.match(name):
            raise ValueError("the other cache names no file of a cache: %r" % ((kind, name),))
        room -= int(size)
        if room < 0:
            break
        if not store.holds(kind, name):
            found.append((kind, name, float(ago_s)))
    return found


def _fetch(request: dict[str, Any], store: CacheStore, kind: str, name: str) -> int:
    with ask(request, "/kept/%s/%s" % (kind, name), READ_S) as answer:
        size = int(answer.headers["Content-Length"] or 0)
        return store.keep(kind, name, _whole(answer, size), "" if kind == PARTS else None)


def _whole(answer: Any, size: int) -> Iterator[bytes]:
    """The bytes of an answer. Raises: HTTPException, when it ends too early."""
    for chunk in iter(lambda: answer.read(CHUNK_BYTES), b""):
        size -= len(chunk)
        yield chunk
    if size:
        raise HTTPException("the other cache has not sent the whole file")
