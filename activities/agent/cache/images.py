"""The mirror of registries of container images for the machines of a region.

It asks as somebody without a password, so it holds what everybody may pull and nothing else:
private images go past it. Manifests and blobs are kept by their digest, which is checked before any
of them is served. What a tag means is asked anew after a while; while its registry is away, the
last answer counts. The protocol is that of the OCI distribution specification, read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from typing import Any, BinaryIO

from ..errors import RefusedError
from .package_index import Counters, KeyedLocks, UpstreamError
from .store import IMAGES, CacheStore, chunks_of

NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*){0,9}\Z")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
CHALLENGE = re.compile(r'(realm|service|scope)="([^"]*)"')
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest."
ACCEPTED = ", ".join((INDEX, MANIFEST, DOCKER + "list.v2+json", DOCKER + "v2+json"))
TAG_KEPT_S = 600.0
TOKEN_KEPT_S = 240.0
MOST_TAGS = 10_000
MOST_MANIFEST_BYTES = 4 << 20
MOST_TOKEN_BYTES = 64 << 10
UPSTREAM_LIMIT_S = 30.0
"""The timeout of one connection or one read; a whole blob may take longer."""


class ImageMirror:
    """The mirror of some registries. registries: the address of each, by its name in a path."""

    def __init__(
        self, store: CacheStore, registries: Mapping[str, str], counters: Counters
    ) -> None:
        self._store, self._registries, self._counters = store, registries, counters
        self._locks, self._lock = KeyedLocks(), threading.Lock()
        self._tags: OrderedDict[str, tuple[float, str]] = OrderedDict()
        """What each tag meant, and when."""
        self._tokens: dict[str, tuple[float, str]] = {}

    def manifest(self, registry: str, name: str, reference: str) -> tuple[BinaryIO, str] | None:
        """A manifest and its media type; None, when it is not for everybody, or not there.

        Raises: UpstreamError.
        """
        base = self._base(registry, name)
        found = DIGEST.match(reference)
        if base is None or not (found or TAG.match(reference)):
            return None
        url = "%s/manifests/%s" % (base, reference)
        sha256 = found.group(1) if found else self._tagged(url)
        file = None if sha256 is None else self._through(base, url, sha256)
        if file is None:
            return None
        media_type = media_type_of(file.read(MOST_MANIFEST_BYTES))
        file.seek(0)
        return file, media_type

    def blob(self, registry: str, name: str, digest: str) -> BinaryIO | None:
        """A blob; None, when it is not for everybody, or not there. Raises: UpstreamError."""
        base, found = self._base(registry, name), DIGEST.match(digest)
        if base is None or found is None:
            return None
        return self._through(base, "%s/blobs/%s" % (base, digest), found.group(1))

    def _base(self, registry: str, name: str) -> str | None:
        """The address of a repository; None, unless it is one of a registry that is mirrored."""
        address = self._registries.get(registry)
        return "%s/v2/%s" % (address, name) if address and NAME.match(name) else None

    def _tagged(self, url: str) -> str | None:
        """The hash of the manifest that a tag names now."""
        with self._locks.of(url):
            at, sha256 = self._tags.get(url, (0.0, ""))
            if sha256 and time.monotonic() - at < TAG_KEPT_S:
                return sha256
            try:
                with self._asking(url.rpartition("/manifests/")[0], url) as answer:
                    content = answer.read(MOST_MANIFEST_BYTES)
            except UpstreamError as error:
                if _is_absent(error):
                    return None
                if not sha256:
                    raise
                return sha256  # The registry is away: an old answer is better than none.
            found = hashlib.sha256(content).hexdigest()
            if not self._store.has(IMAGES, found):
                self._keep(found, iter((content,)))
            with self._lock:
                self._tags[url] = (time.monotonic(), found)
                self._tags.move_to_end(url)
                while len(self._tags) > MOST_TAGS:
                    self._tags.popitem(last=False)
            return found

    def _through(self, base: str, url: str, sha256: str) -> BinaryIO | None:
        """The file from the store; one request fetches a missing one while the others wait."""
        with self._locks.of(sha256):
            file = self._store.open(IMAGES, sha256)
            if file is not None:
                self._counters.add("image_hits")
                return file
            self._counters.add("image_misses")
            try:
                with self._asking(base, url) as answer:
                    self._keep(sha256, chunks_of(answer))
            except UpstreamError as error:
                if _is_absent(error):
                    return None
                raise
            return self._store.open(IMAGES, sha256)

    def _keep(self, sha256: str, chunks: Iterable[bytes]) -> None:
        try:
            size = self._store.keep(IMAGES, sha256, chunks)
        except RefusedError as refusal:
            raise UpstreamError("image: %s" % refusal.message) from refusal
        self._counters.add("upstream_bytes", size)

    @contextlib.contextmanager
    def _asking(self, base: str, url: str) -> Iterator[Any]:
        """A registry's answer, as to somebody without a password. Raises: UpstreamError."""
        try:
            with self._opened(base, url) as answer:
                yield answer
        except (OSError, HTTPException, ValueError) as error:  # HTTPError is an OSError.
            raise UpstreamError("%s: %s" % (url, error)) from error

    def _opened(self, base: str, url: str) -> Any:
        at, token = self._tokens.get(base, (0.0, ""))
        if time.monotonic() - at > TOKEN_KEPT_S:
            token = ""
        try:
            return _open(url, token)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate") or ""
            if error.code != 401 or not challenge.lower().startswith("bearer "):
                raise
            error.close()
            token = _token(challenge, url)
            with self._lock:
                if len(self._tokens) > MOST_TAGS:
                    self._tokens.clear()
                self._tokens[base] = (time.monotonic(), token)
            return _open(url, token)


def media_type_of(manifest: bytes) -> str:
    """The media type that a manifest says it has, or that its fields show."""
    try:
        document = json.loads(manifest.decode())
        said = document.get("mediaType")
        is_index = "manifests" in document
    except (ValueError, AttributeError):
        return "application/octet-stream"
    if isinstance(said, str) and said in ACCEPTED:
        return said
    return INDEX if is_index else MANIFEST


def _open(url: str, token: str) -> Any:
    request = urllib.request.Request(
        url, headers={"Accept": ACCEPTED, "User-Agent": "baseload-cache"}
    )
    if token:  # Not for where a registry redirects to: a store of objects refuses it.
        request.add_unredirected_header("Authorization", "Bearer " + token)
    return urllib.request.urlopen(request, timeout=UPSTREAM_LIMIT_S)


def _token(challenge: str, url: str) -> str:
    """The token that a registry gives everybody for one repository."""
    asked = dict(CHALLENGE.findall(challenge))
    realm = asked.pop("realm", "")
    if not realm.startswith("https://") and not url.startswith("http://"):
        raise ValueError("the registry asks for a token from %r" % realm)
    address = "%s?%s" % (realm, urllib.parse.urlencode(asked))
    with urllib.request.urlopen(address, timeout=UPSTREAM_LIMIT_S) as answer:
        document = json.loads(answer.read(MOST_TOKEN_BYTES).decode())
    token = document.get("token") or document.get("access_token")
    if not token:
        raise ValueError("the registry gives no token at %s" % realm)
    return str(token)


def _is_absent(error: UpstreamError) -> bool:
    """Whether a registry has said that there is no such image for everybody."""
    cause = error.__cause__
    return isinstance(cause, urllib.error.HTTPError) and cause.code in (401, 403, 404)
