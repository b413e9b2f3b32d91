"""Everything made in Compute Engine, by its path, and lists that may lag behind it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError

NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
MOST_LABELS = 64


@dataclass
class _Kept:
    """A resource, or what lists still show of one that is gone; instants are monotonic."""

    body: Json
    made: float
    gone: float | None = None


class Resources:
    """Bodies by path, such as `projects/p/zones/z/instances/n`.

    list_lag_s: for how long lists neither show what was made nor miss what is gone.
    busy: paths of what an operation works at, which nothing else may use meanwhile.
    """

    def __init__(self) -> None:
        self._collections: dict[str, dict[str, _Kept]] = {}
        self.list_lag_s = 0.0
        self.busy: set[str] = set()

    def find(self, path: str) -> Json | None:
        kept = self._collections.get(_folder(path), {}).get(path)
        return kept.body if kept is not None and kept.gone is None else None

    def get(self, path: str) -> Json:
        """Raises: RefusedError (404)."""
        body = self.find(path)
        if body is None:
            raise RefusedError.not_found(path)
        return body

    def usable(self, path: str) -> Json:
        """What exists and has no operation under way. Raises: RefusedError (404, 400)."""
        body = self.get(path)
        if path in self.busy:
            raise RefusedError.not_ready(path)
        return body

    def add(self, path: str, body: Json) -> Json:
        """Raises: RefusedError (409) when there is one of that name."""
        if self.find(path) is not None:
            raise RefusedError.exists(path)
        self._collections.setdefault(_folder(path), {})[path] = _Kept(body, time.monotonic())
        return body

    def remove(self, path: str) -> None:
        """Silent when nothing is there."""
        kept = self._collections.get(_folder(path), {}).get(path)
        if kept is not None:
            kept.gone = time.monotonic()
            if not self.list_lag_s:
                del self._collections[_folder(path)][path]
        self.busy.discard(path)

    def each(self, folder: str) -> list[Json]:
        """What there is in a folder such as `projects/p/zones/z/instances`, lag or no lag."""
        found = self._collections.get(folder, {}).values()
        return [kept.body for kept in found if kept.gone is None]

    def listed(self, folder: str) -> list[Json]:
        """What a list shows now, by name."""
        before = time.monotonic() - self.list_lag_s
        shown = [
            kept.body
            for kept in self._collections.get(folder, {}).values()
            if (kept.made <= before and (kept.gone is None or kept.gone > before))
        ]
        return sorted(shown, key=lambda body: str(body["name"]))

    def paths(self, pattern: str) -> Iterator[str]:
        """The paths of what exists and matches a regular expression."""
        compiled = re.compile(pattern)
        for kept_ones in list(self._collections.values()):
            for path, kept in list(kept_ones.items()):
                if kept.gone is None and compiled.fullmatch(path):
                    yield path


def path_of(link: str) -> str:
    """The path from `projects/` on of a full or partial link; partial ones stay as they are."""
    found = re.search(r"projects/.*", link)
    return found[0] if found else link


def qualified(project: str, link: str) -> str:
    """The path of a link that may leave its project out, as `zones/z/machineTypes/t`."""
    path = path_of(link)
    return path if path.startswith("projects/") else f"projects/{project}/{path.lstrip('/')}"


def check_name(name: object, field: str = "resource.name") -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        why = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
        raise RefusedError.invalid_field(field, name, why)
    return name


def check_labels(labels: Json) -> None:
    if len(labels) > MOST_LABELS:
        raise RefusedError.invalid_field("resource.labels", len(labels), "Too many labels.")
    for key, value in labels.items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            why = "Label keys and values must be lower case letters, digits, '_' and '-'."
            raise RefusedError.invalid_field("resource.labels", f"{key}: {value}", why)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
