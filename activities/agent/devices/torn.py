"""What a power cut has torn while a revision was staged, removed so that it is staged anew.

The kernel writes files to the disk long after they were made, so that a power cut leaves some of
them empty. Whole is what is named by a marker, which is written when all of it is on the disk.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..folders import OWN_ENVIRONMENT, forget, take_lock
from ..host import file_tree, images, processes, steps
from .state import Revision

STAGING, WHOLE = "staging.json", "whole.json"
CONTAINERS = "/var/lib/containers"
FOLDERS = ("work", "work.part", OWN_ENVIRONMENT)


def begin(revision: Revision, image: str | None) -> None:
    """Note the boot of a staging, and remove what one of another boot has left unfinished."""
    if revision.has(WHOLE):
        return
    boot_id = processes.boot_id()
    before = revision.read(STAGING)
    if before is not None and before["boot_id"] == boot_id:
        return
    lock = take_lock(revision.at("stage.lock"), wait=True)
    try:
        if before is not None or revision.has("spec.json"):
            _remove(revision, image, (before or {}).get("had_image"))
        note: dict[str, Any] = {"boot_id": boot_id, "had_image": image and _image_id(image)}
        revision.write(STAGING, note)
    finally:
        os.close(lock or 0)


def end(revision: Revision) -> None:
    """Wait until all of a staged revision is on the disk, and say so."""
    if revision.has(WHOLE):
        return
    for folder in {revision.folders.root, CONTAINERS}:
        if os.path.isdir(folder):
            steps.sync(folder)
    revision.write(WHOLE, {"boot_id": processes.boot_id()})


def _remove(revision: Revision, image: str | None, had_image: str | None) -> None:
    found = {(revision.read("spec.json") or {}).get("image_id"), image and _image_id(image)}
    forget(revision.at("spec.json"))
    for name in FOLDERS:
        file_tree.remove(revision.at(name))
    for image_id in sorted(filter(None, found - {had_image})):
        images.forget_torn(revision.folders, image_id)


def _image_id(image: str) -> str | None:
    with contextlib.suppress(OSError):  # No podman, which the staging says.
        return images.id_of(image)
    return None
