"""The pages of a package index, rewritten so that their files come through the cache.

The format is PEP 503, with the hashes of PEP 658's metadata files. A link without a sha256 cannot
be checked, so it stays unchanged and leads to the index.
"""

from __future__ import annotations

import html
import re
import urllib.parse
from html.parser import HTMLParser

from ..folders import SHA256

PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
METADATA = ".metadata"
METADATA_ATTRIBUTES = ("data-core-metadata", "data-dist-info-metadata")
KEPT_ATTRIBUTES = ("data-requires-python", "data-yanked")
PAGE = """<!DOCTYPE html>
<html><head><meta name="pypi:repository-version" content="1.0"><title>%s</title></head><body>
%s
</body></html>
"""


class Link:
    """One file of a project."""

    def __init__(self, url: str, attributes: dict[str, str | None]) -> None:
        self.url, _, fragment = url.partition("#")
        self.fragment = fragment
        self.attributes = attributes
        self.filename = urllib.parse.unquote(
            urllib.parse.urlsplit(self.url).path.rpartition("/")[2]
        )
        self.sha256 = _sha256(fragment) if self._can_be_cached() else None
        stated = [attributes.get(name) for name in METADATA_ATTRIBUTES]
        self.metadata_sha256 = next((found for found in map(_sha256, stated) if found), None)

    def _can_be_cached(self) -> bool:
        plain = self.url.startswith(("https://", "http://"))
        return plain and bool(self.filename) and "/" not in self.filename

    def shown(self, project: str) -> str:
        """The line of this file in the page."""
        if self.sha256 is None:
            href, kept = self.url, dict(self.attributes)
            href += "#" + self.fragment if self.fragment else ""
        else:
            name = urllib.parse.quote(self.filename)
            href = "/files/%s/%s/%s#sha256=%s" % (project, self.sha256, name, self.sha256)
            kept = {name: self.attributes.get(name) for name in KEPT_ATTRIBUTES}
            kept = {name: value for name, value in kept.items() if name in self.attributes}
            if self.metadata_sha256:
                kept.update(dict.fromkeys(METADATA_ATTRIBUTES, "sha256=" + self.metadata_sha256))
        kept.pop("href", None)
        attributes = "".join(
            ' %s="%s"' % (name, html.escape(value or "", quote=True))
            for name, value in kept.items()
        )
        words = html.escape(self.filename)
        return '<a href="%s"%s>%s</a><br>' % (html.escape(href, quote=True), attributes, words)


def _sha256(stated: str | None) -> str | None:
    name, _, value = (stated or "").partition("=")
    return value if name == "sha256" and SHA256.match(value) else None


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        href = attributes.get("href")
        if not href:
            return
        if tag == "base":
            self.url = urllib.parse.urljoin(self.url, href)
        elif tag == "a":
            self.links.append(Link(urllib.parse.urljoin(self.url, href), attributes))


def links_of(page: str, url: str) -> list[Link]:
    """Every file that a page names. url: the address of the page."""
    reader = _Reader(url)
    reader.feed(page)
    reader.close()
    return reader.links


def page_of(project: str, links: list[Link]) -> str:
    """The page of a project, with links to the cache."""
    return PAGE % (html.escape(project), "\n".join(link.shown(project) for link in links))


def normal(project: str) -> str | None:
    """The normalized name of a project; None when the text is not a valid name."""
    if not PROJECT.match(project):
        return None
    return re.sub(r"[-_.]+", "-", project).lower()
