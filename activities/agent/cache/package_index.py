"""The mirror of the package index for the machines of a region: each file is fetched once.

Pages are kept in memory for a while, files on disk as long as there is room. A file is fetched
whole and checked against the index's hash before any of it is served. Nothing that a machine builds
or runs is stored here, so no job gets a file that another job has made.
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from http.client import HTTPException
from typing import Any, BinaryIO

from ..errors import RefusedError
from .index_pages import METADATA, Link, links_of, normal, page_of
from .store import FILES, CacheStore, chunks_of

PAGE_KEPT_S = 600.0
MOST_PAGES = 1000
MOST_PAGE_BYTES = 64 << 20
UPSTREAM_LIMIT_S = 30.0
"""The timeout of one connection or one read; a whole file may take longer."""


class UpstreamError(Exception):
    """The index does not answer, or its answer does not match its own hash."""


class Counters:
    """The counters of the cache since its start; `GET /stats` shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count

    def shown(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class KeyedLocks:
    """One lock for each key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, list[Any]] = {}

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        with self._lock:
            entry = self._held.setdefault(key, [threading.Lock(), 0])
            entry[1] += 1
        try:
            with entry[0]:
                yield
        finally:
            with self._lock:
                entry[1] -= 1
                if not entry[1]:
                    self._held.pop(key, None)


class Page:
    """The index's page of a project."""

    def __init__(self, project: str, links: list[Link]) -> None:
        self.links = links
        self.content = page_of(project, links).encode()
        self.read_at = time.monotonic()

    def is_fresh(self) -> bool:
        return time.monotonic() - self.read_at < PAGE_KEPT_S


class PackageMirror:
    """The mirror of one package index. index_url: such as `https://pypi.org/simple`."""

    def __init__(self, store: CacheStore, index_url: str, counters: Counters) -> None:
        self._store = store
        self._index_url = index_url.rstrip("/")
        self._counters = counters
        self._locks = KeyedLocks()
        self._lock = threading.Lock()
        self._pages: OrderedDict[str, Page] = OrderedDict()

    def page(self, asked: str) -> bytes | None:
        """The page of a project; None when it does not exist. Raises: UpstreamError."""
        project = normal(asked)
        page = self._page(project) if project else None
        if page is None:
            return None
        self._counters.add("pages_served")
        return page.content

    def file(self, asked: str, sha256: str, filename: str) -> BinaryIO | None:
        """A file that a page names, or its metadata; None when no page names the file.

        Raises: UpstreamError.
        """
        project = normal(asked)
        if project is None:
            return None
        if not filename.endswith(METADATA):
            file = self._store.open(FILES, sha256)
            if file is not None:
                self._counters.add("file_hits")
                return file
        source = self._source(project, sha256, filename)
        return None if source is None else self._through(*source)

    def _source(self, project: str, sha256: str, filename: str) -> tuple[str, str] | None:
        """The hash of the requested file, and its address."""
        page = self._page(project)
        for link in page.links if page else []:
            if link.sha256 == sha256 and filename == link.filename:
                return sha256, link.url
            if link.sha256 == sha256 and filename == link.filename + METADATA:
                return (link.metadata_sha256, link.url + METADATA) if link.metadata_sha256 else None
        return None

    def _through(self, sha256: str, url: str) -> BinaryIO:
        """The file from the store; one request fetches a missing file while the others wait."""
        with self._locks.of(sha256):
            file = self._store.open(FILES, sha256)
            if file is not None:
                self._counters.add("file_hits")
                return file
            self._counters.add("file_misses")
            with _asking(url) as answer:
                size = self._store.keep(FILES, sha256, chunks_of(answer))
            self._counters.add("upstream_bytes", size)
            file = self._store.open(FILES, sha256)
        if file is None:
            raise UpstreamError("%s: the cache has no room for the file" % url)
        return file

    def _page(self, project: str) -> Page | None:
        with self._locks.of("page of " + project):
            page = self._kept(project)
            if page is not None and page.is_fresh():
                return page
            self._counters.add("pages_read")
            try:
                fresh = self._read(project)
            except UpstreamError:
                if page is None:
                    raise
                return page  # An old page is better than none, and its files are still checked.
            if fresh is not None:
                self._keep(project, fresh)
            return fresh

    def _read(self, project: str) -> Page | None:
        url = "%s/%s/" % (self._index_url, project)
        try:
            with _asking(url) as answer:
                content = answer.read(MOST_PAGE_BYTES)
                found_at = answer.geturl()
        except UpstreamError as error:
            cause = error.__cause__
            if isinstance(cause, urllib.error.HTTPError) and cause.code in (404, 410):
                return None
            raise
        self._counters.add("upstream_bytes", len(content))
        return Page(project, links_of(content.decode("utf-8", "replace"), found_at))

    def _kept(self, project: str) -> Page | None:
        with self._lock:
            page = self._pages.get(project)
            if page is not None:
                self._pages.move_to_end(project)
            return page

    def _keep(self, project: str, page: Page) -> None:
        with self._lock:
            self._pages[project] = page
            self._pages.move_to_end(project)
            while len(self._pages) > MOST_PAGES:
                self._pages.popitem(last=False)


@contextlib.contextmanager
def _asking(url: str) -> Iterator[Any]:
    """The index's answer. Raises: UpstreamError, also for one that breaks off or is another."""
    request = urllib.request.Request(
        url, headers={"Accept": "text/html, */*;q=0.1", "User-Agent": "baseload-cache"}
    )
    try:
        with urllib.request.urlopen(request, timeout=UPSTREAM_LIMIT_S) as answer:
            yield answer
    except (OSError, HTTPException, ValueError) as error:  # HTTPError is an OSError.
        raise UpstreamError("%s: %s" % (url, error)) from error
    except RefusedError as refusal:
        raise UpstreamError("%s: %s" % (url, refusal.message)) from refusal
