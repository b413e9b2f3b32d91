"""The code in a region's cache: stored there by the platform, fetched from there by machines."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
import urllib.error
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from typing import Any

from ..errors import RefusedError
from ..files.code_archive import check_hash, unpack_code
from ..files.transfer import place_input
from ..folders import Folders
from .client import ask
from .location import FOLDER, configuration_of
from .store import CHUNK_BYTES, CODE, CacheStore, chunks_of

READ_S = 20.0
PART = ".fetched-"


def keep_code(request: dict[str, Any]) -> dict[str, Any]:
    """Store an uploaded archive in this machine's cache, replacing one that is there.

    The archive is removed afterwards, also when it is refused.
    Raises: RefusedError `no-cache`, `no-archive`, `hash-mismatch`, `too-large`.
    """
    folders = Folders(request.get("root", ""))
    path = request["archive"]
    try:
        wanted = configuration_of(folders)
        if wanted is None:
            raise RefusedError("no-cache", "this machine serves no cache")
        store = CacheStore(os.path.join(folders.root, FOLDER), int(wanted["max_bytes"]))
        with open(path, "rb") as archive, as_user(wanted.get("user")):
            store.keep(CODE, request["sha256"], chunks_of(archive))
    except FileNotFoundError as error:
        raise RefusedError("no-archive", str(error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    return {}


@contextlib.contextmanager
def as_user(user: str | None) -> Iterator[None]:
    """Write files as that account, so that root follows no link that the account has made."""
    if not user:
        yield
        return
    entry = pwd.getpwnam(user)
    mask = os.umask(0o077)
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.umask(mask)


def fetch_code(request: dict[str, Any]) -> dict[str, Any]:
    """Fetch code from the region's cache and unpack it; a failing cache is no refusal.

    cache: the cache's host:port; max_archive_bytes: the limit of an archive.
    Answers `found`: `here` (unpacked already), `fetched`, `missing`, `damaged` or `unreached`;
    `words`; `fetched_bytes`.
    Raises: RefusedError as `unpack_code`, except for a wrong hash, which is `damaged`.
    """
    folders = Folders(request.get("root", ""))
    folders.make()
    sha256 = request["sha256"]
    if os.path.isdir(folders.code_of(sha256)):
        return _told("here")
    descriptor, part = tempfile.mkstemp(prefix=PART, dir=folders.code)
    try:
        return _outcome(partial(_bring_code, request, descriptor, part))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def fetch_input(request: dict[str, Any]) -> dict[str, Any]:
    """Fetch a run's input from the region's cache, and unpack it as `put_input` does.

    Asks and answers as `fetch_code`, but `here`.
    Raises: RefusedError as `put_input`.
    """
    return _outcome(partial(_bring_input, request))


def _bring_code(request: dict[str, Any], descriptor: int, part: str) -> int:
    with os.fdopen(descriptor, "wb") as file:
        size = _download(request, file)
    unpack_code(dict(request, archive=part))
    return size


def _bring_input(request: dict[str, Any]) -> int:
    sizes = []

    def receive(file: Any) -> None:
        sizes.append(_download(request, file))
        file.flush()
        check_hash(file.name, request["sha256"])

    place_input(request, receive)
    return sizes[0]


def _outcome(bring: Callable[[], int]) -> dict[str, Any]:
    """What came of an attempt to bring something from the cache, whose failure is no refusal."""
    try:
        return _told("fetched", fetched_bytes=bring())
    except urllib.error.HTTPError as error:
        return _told("missing" if error.code == 404 else "unreached", str(error))
    except (OSError, HTTPException) as error:
        return _told("unreached", str(error))
    except RefusedError as refusal:
        if refusal.code != "hash-mismatch":
            raise
        return _told("damaged", refusal.message)


def _told(found: str, words: str = "", fetched_bytes: int = 0) -> dict[str, Any]:
    return {"found": found, "words": words, "fetched_bytes": fetched_bytes}


def _download(request: dict[str, Any], file: Any) -> int:
    path = "/code/%s" % request["sha256"]
    with ask(request, path, READ_S) as answer:
        if int(answer.headers["Content-Length"] or 0) > int(request["max_archive_bytes"]):
            raise RefusedError("hash-mismatch", "%s: larger than any archive may be" % path)
        shutil.copyfileobj(answer, file, CHUNK_BYTES)
    return int(file.tell())
