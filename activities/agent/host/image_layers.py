"""Layers of private images: whoever names them has to show that its registry sends them.

podman takes a layer that is here as soon as a manifest names it. Who knew its digest would get the
layer by a registry that has nothing of it. So an image that shares layers with private images of
other repositories is pulled once more, into a store of its own, which has no layers yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ..folders import Folders, read_json
from . import file_tree, private_images
from .containers import podman
from .run_root import MNT_DETACH

STORE = "image-proof"


def are_foreign(
    folders: Folders, image: str, image_id: str, before: Mapping[str, set[str]]
) -> bool:
    """Whether an image has layers of private images that came here from other repositories.

    before: the names of the images that were here before it was pulled, by id.
    """
    repository = private_images.repository_of(image)
    if repository in (_note(folders, image_id).get("sent_by") or ()):
        return False
    others = [each for each in before if _is_foreign(folders, each, before[each], repository)]
    layers = _layers([image_id, *others]) if others else {}
    own = layers.pop(image_id, set())
    return any(own & each for each in layers.values())


@contextlib.contextmanager
def empty_store(folders: Folders) -> Iterator[list[str]]:
    """podman's options for a store without layers, which goes after the block."""
    top = os.path.join(folders.root, "%s-%d" % (STORE, os.getpid()))
    short = tempfile.mkdtemp(prefix="baseload-", dir="/tmp")  # Of at most 50 characters for podman.
    options = ["--root", os.path.join(top, "root"), "--runroot", short]
    try:
        yield options
    finally:
        podman([*options, "rmi", "--all", "--force"], 600.0)
        overlay = os.path.join(top, "root", "overlay")
        ctypes.CDLL(None).umount2(os.fsencode(overlay), MNT_DETACH)  # podman leaves it mounted.
        for folder in (top, short):
            file_tree.remove(folder)


def _is_foreign(folders: Folders, image_id: str, names: set[str], repository: str) -> bool:
    """Whether an image is private, and none that this repository has sent."""
    note = _note(folders, image_id)
    known = set(note.get("names") or names)
    is_private = note.get("by_login") or any(private_images.is_marked(folders, n) for n in known)
    return bool(is_private) and repository not in map(private_images.repository_of, known)


def _layers(image_ids: list[str]) -> dict[str, set[str]]:
    done = podman(["image", "inspect", "--format", "{{.Id}} {{json .RootFS.Layers}}", *image_ids])
    found = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        image_id, _, layers = line.partition(" ")
        found[image_id] = set(json.loads(layers) or ())
    return found


def _note(folders: Folders, image_id: str) -> dict[str, Any]:
    return read_json(os.path.join(folders.root, "images", image_id)) or {}
