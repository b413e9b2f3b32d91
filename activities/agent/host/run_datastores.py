"""The folders of a run that stand for folders of datastores, as its command finds them.

`BASELOAD_DATASTORE` is a folder with a link to each of them, by its use; `BASELOAD_SCRATCH` is the
one that is there for the run's life alone.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..folders import Run

FOLDER = "datastores"
SCRATCH = "scratch"
USES = ("input", "output", SCRATCH)


def make(run: Run, spec: dict[str, Any]) -> None:
    """Make the links to the folders of datastores."""
    uses = _uses(spec)
    if not uses:
        return
    os.makedirs(run.at(FOLDER), mode=0o755, exist_ok=True)
    os.chmod(run.at(FOLDER), 0o755)
    for use in uses:
        with contextlib.suppress(FileExistsError):
            os.symlink("../" + use, os.path.join(run.at(FOLDER), use))


def variables(spec: dict[str, Any], top: str) -> dict[str, str]:
    """The variables that name the folders. top: where they are for the run."""
    uses = _uses(spec)
    found = {"BASELOAD_DATASTORE": "%s/%s" % (top, FOLDER)} if uses else {}
    if SCRATCH in uses:
        found["BASELOAD_SCRATCH"] = "%s/%s" % (top, SCRATCH)
    return found


def volumes(run: Run, spec: dict[str, Any], top: str) -> list[str]:
    """podman's arguments that show a container the folders which not every run has."""
    uses, found = _uses(spec), []
    if uses:
        found += ["--volume", "%s:%s/%s:ro" % (run.at(FOLDER), top, FOLDER)]
    if SCRATCH in uses:
        found += ["--volume", "%s:%s/%s:rw" % (run.at(SCRATCH), top, SCRATCH)]
    return found


def _uses(spec: dict[str, Any]) -> list[str]:
    return [use for use in USES if use in (spec.get("datastores") or ())]
