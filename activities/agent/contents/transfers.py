"""The verbs that bring contents to this node: what is here, from the platform, from the cache."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import urllib.error
from http.client import HTTPException
from typing import Any

from ..cache.client import ask
from ..errors import RefusedError
from ..files.removal import unless_removed
from ..folders import Folders
from ..loading import load
from . import part_names, store
from .arrival import MOST_MANIFEST_BYTES, READ_BYTES, Arrival, Intake

SILENCE_S = 60.0
"""After so long without a byte, a transfer from the platform ends: its connection may be lost."""
READ_S = 20.0
WAIT_S = 5.0
"""How long the cache is asked for a part that it is being filled with."""
AGAIN_S = 0.2
SAY_S = 1.0


def find_contents(request: dict[str, Any]) -> dict[str, Any]:
    """Note what a run needs, make room for it, and answer how much of each content is here.

    contents: `sha256`, `size_bytes` and `file_count` of each; most_bytes: the limit of all contents
    of this node together.
    Raises: RefusedError `removed`, `disk-full`.
    """
    folders = Folders(request.get("root", ""))
    run = folders.run(request["run_id"])
    store.make(folders)
    asked = {store.checked(one["sha256"]): one for one in request["contents"]}
    with unless_removed(run):
        run.make(request.get("owner"))
        # A staging that is repeated: its volumes are the run's own, and not brought once more.
        own = load("contents.volumes:opened")(run) if run.has("spec.json") else set()
        store.need(run, sorted(set(asked) - own))
    found, missing = [], {}
    for sha256, one in asked.items():
        document = {"sha256": sha256, "present": False, "has_manifest": False, "position": 0}
        if sha256 in own:
            found.append(dict(document, present=True))
            continue
        with contextlib.suppress(RefusedError), store.locked(folders, sha256, 0.0):
            # Else another transfer of it goes on, which has its room.
            if _is_missing(folders, sha256, document):
                size, files = int(one["size_bytes"]), int(one["file_count"])
                missing[sha256] = store.BESIDE_BYTES + size + files * store.BLOCK_BYTES
        found.append(document)
    if missing:
        store.reserve(folders, missing, request.get("most_bytes"))
    return {"contents": found}


def _is_missing(folders: Folders, sha256: str, document: dict[str, Any]) -> bool:
    """Say how much of a content is here; whether that is not all."""
    if store.take(folders, sha256) is not None:
        document["present"] = True
        return False
    arrival = Arrival(folders, sha256)
    document["has_manifest"] = arrival.manifest is not None
    document["position"] = arrival.position
    return True


def receive_content(request: dict[str, Any]) -> None:
    """Take in a content from stdin: its manifest of `manifest_bytes`, then its parts as one stream
    from the byte `position` on.

    What comes before an interruption stays, and `find_contents` says where to go on.
    Raises: RefusedError `content-moved`, when the position is another one; `damaged-part`,
    `disk-full`, `broken-content`, `unsafe-content`, `content-busy`, `content-cut`.
    """
    folders, sha256 = Folders(request.get("root", "")), store.checked(request["sha256"])
    with store.locked(folders, sha256):
        if store.take(folders, sha256) is not None:
            return
        arrival = Arrival(folders, sha256)
        arrival.keep_manifest(_read_exactly(int(request["manifest_bytes"])))
        if arrival.position != int(request["position"]):
            raise RefusedError(
                "content-moved",
                "content %s: asked from byte %s, found %d here"
                % (sha256, request["position"], arrival.position),
            )
        buffer = bytearray(READ_BYTES)
        view = memoryview(buffer)
        with Intake(arrival) as intake:
            while not arrival.is_whole:
                count = _read_into(view)
                if not count:
                    break
                intake.write(view[:count])
        if not arrival.is_whole:
            raise RefusedError(
                "content-cut", "content %s: ended after %d bytes" % (sha256, arrival.position)
            )


def fetch_content(request: dict[str, Any]) -> dict[str, Any]:
    """Fetch the missing parts of a content from the region's cache; a failing cache is no refusal.

    Its manifest is here already, or `manifest` in the request. cache: host:port; key: the key by
    which the cache names the content's parts; wait: whether the cache is being filled, so that a
    part that is missing may be there in a moment.
    Answers `found`: `fetched`, `missing`, `damaged` or `unreached`; `words`; `part`, the number of
    the part that could not be had; `position`; `fetched_bytes`.
    Raises: RefusedError `disk-full`, `broken-content`, `unsafe-content`, `content-busy`.
    """
    folders, sha256 = Folders(request.get("root", "")), store.checked(request["sha256"])
    with store.locked(folders, sha256):
        if store.take(folders, sha256) is not None:
            return _told("fetched", None, 0)
        arrival = Arrival(folders, sha256)
        if request.get("manifest"):
            arrival.keep_manifest(request["manifest"].encode())
        if arrival.manifest is None:
            return _told("missing", arrival, 0, "its manifest is not here")
        before = arrival.position
        found, words = "fetched", ""
        try:
            with Intake(arrival) as intake:
                _fetch_all(request, arrival, intake)
        except urllib.error.HTTPError as error:
            found, words = ("missing" if error.code == 404 else "unreached"), str(error)
        except (OSError, HTTPException) as error:
            found, words = "unreached", str(error)
        except RefusedError as refusal:
            if refusal.code != "damaged-part":
                raise
            found, words = "damaged", refusal.message
        return _told(found, arrival, arrival.position - before, words)


def _told(found: str, arrival: Arrival | None, fetched: int, words: str = "") -> dict[str, Any]:
    document = {"found": found, "words": words, "fetched_bytes": max(0, fetched)}
    position, part = (arrival.position, arrival.number) if arrival else (0, 0)
    return dict(document, position=position, part=part)


def _fetch_all(request: dict[str, Any], arrival: Arrival, intake: Intake) -> None:
    """Take in every part from the cache. Raises: OSError, HTTPException; as `Intake.write`."""
    assert arrival.manifest is not None
    parts, said_at = arrival.manifest.parts, time.monotonic()
    while not arrival.is_whole:
        name = part_names.name_of(request["key"], parts[arrival.number][0])
        number = arrival.number
        with _open(request, "/parts/" + name, arrival.begun) as answer:
            for chunk in iter(lambda: answer.read(READ_BYTES), b""):
                intake.write(memoryview(chunk)[: parts[number][1] - arrival.begun])
                if time.monotonic() - said_at > SAY_S:
                    said_at = time.monotonic()
                    sys.stderr.write("contents: %d MiB are here\n" % (arrival.position >> 20))
                    sys.stderr.flush()
                if arrival.number != number:
                    break
        if arrival.number == number:
            raise HTTPException("the cache has not sent the whole part")


def _open(request: dict[str, Any], path: str, offset: int) -> Any:
    """The part from a byte on; one that may come in a moment is asked for again."""
    deadline = time.monotonic() + (WAIT_S if request.get("wait") else 0.0)
    while True:
        try:
            answer = ask(request, path, READ_S, offset)
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > deadline:
                raise
            error.close()
            time.sleep(AGAIN_S)
            continue
        if offset and answer.status != 206:
            answer.close()
            raise HTTPException("the cache gives no part from a byte on")
        return answer


def _read_exactly(count: int) -> bytes:
    if not 0 <= count <= MOST_MANIFEST_BYTES:
        raise RefusedError("bad-manifest", "manifest: has %d bytes" % count)
    found = bytearray(count)
    view = memoryview(found)
    while view:
        read = _read_into(view)
        if not read:
            raise RefusedError("content-cut", "manifest: ended too early")
        view = view[read:]
    return bytes(found)


def _read_into(view: memoryview) -> int:
    """Read from stdin; 0 at its end, and after `SILENCE_S` without a byte."""
    ready, _, _ = select.select([0], [], [], SILENCE_S)
    return os.readv(0, [view]) if ready else 0
