"""What the inference of a device had brought: code, models and images, removed with the device.

They lie in caches, which a node on the same machine has as well, so what an open run needs stays.
Where jobs have run here, only what the revisions name goes; else all goes, because nothing names
what earlier revisions had any more, and a device that was removed may keep no model.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..errors import RefusedError
from ..files import code
from ..files.removal import names_in
from ..folders import Folders, read_json, write_json
from ..host import images
from ..loading import load
from .state import Store, revisions

NOTE = "leaving.json"
"""What the revisions name, kept until all is done, for a repeat finds the revisions gone."""
LATER_S = 60.0
"""A file may carry a time that is a little later than the clock's."""
OF_JOBS = "job-"


def note(store: Store) -> None:
    """Note what the revisions that are here name, before they are removed."""
    if not os.path.isdir(store.path):
        return
    found: dict[str, Any] = read_json(store.at(NOTE)) or {}
    specs = [revision.read("spec.json") or {} for revision in revisions(store.folders)]
    more = {
        "contents": [one.get("sha256") for spec in specs for one in spec.get("contents") or []],
        "images": [spec.get("image_id") for spec in specs],
        "code": [spec.get("code_sha256") for spec in specs],
    }
    named = {name: sorted({*found.get(name, ()), *filter(None, more[name])}) for name in more}
    write_json(store.at(NOTE), named)


def clear(store: Store) -> None:
    """Remove what was noted, unless an open run needs it, and the rest where no jobs have run.

    Raises: RefusedError `not-removed`, `content-busy`.
    """
    folders = store.folders
    named: dict[str, list[str]] = read_json(store.at(NOTE)) or {}
    is_alone = not _has_run_jobs(folders)
    oldest = time.time() + LATER_S
    contents = set(named.get("contents", ())) | (_contents(folders) if is_alone else set())
    left = load("contents.store:discard")(folders, contents)
    left += images.discard(folders, set(named.get("images", ())), everything=is_alone)
    uploads = names_in(folders.code) if is_alone else named.get("code", [])
    for name in uploads:
        code.forget(folders, name, oldest)
    if left:
        words = "what the device had could not be removed: %s"
        raise RefusedError("not-removed", words % ", ".join(left))


def _contents(folders: Folders) -> set[str]:
    found: set[str] = load("contents.store:everything")(folders)
    return found


def _has_run_jobs(folders: Folders) -> bool:
    """Whether this machine is a node as well."""
    others = set(folders.run_ids()) - {one.run_id for one in revisions(folders)}
    return bool(others) or any(name.startswith(OF_JOBS) for name in names_in(folders.removed))
