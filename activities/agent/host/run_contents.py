"""The contents of a run: the folders in which its command finds datasets, a model and others.

They are `datasets/<name>`, `models/<name>`, `checkpoints/<name>` and `volumes/<name>` in the run's
folder; one is `input` itself, where the job has such an input. A volume that the run writes to is
`volume-<name>` beside them, of the run's account, and the folder of its name is a link to that
(`contents/volumes.py`).

All others can only be read. A run in a mount namespace of its own has the contents mounted there,
and nobody else can enter them; a container has them as volumes. Any other run has links: where runs
have accounts of their own, the folder of all contents is then open to who knows a content's hash,
and the run's folders are open to its account alone.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any

from ..folders import Folders, Run

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
ROLE = re.compile(r"[a-z]{1,20}\Z")
WRITTEN = "volume-"
"""What the name of a folder begins with that holds a volume which the run writes to."""
SINGLE = "model"
"""The role of which a run has one content at most, so that its variable names that content."""
INPUT = "input"
"""The role of the content that is the run's input folder itself."""


def places(folders: Folders, spec: dict[str, Any]) -> dict[str, str]:
    """By place in the run's folder, the folder of each content that the run reads.

    Raises: ValueError, for a name that can be none of a folder.
    """
    return {
        _place(one): os.path.join(folders.contents, one["sha256"])
        for one in _checked(spec)
        if not one.get("writes")
    }


def written(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The volumes that the run writes to. Raises: ValueError, as `places`."""
    return [one for one in _checked(spec) if one.get("writes")]


def folders(spec: dict[str, Any]) -> list[str]:
    """The folders of the run in which its contents have their places. Raises: ValueError."""
    return sorted({_place(one).partition("/")[0] for one in _checked(spec)})


def written_folder(run: Run, name: str) -> str:
    """The folder of a volume that the run writes to."""
    return run.at(WRITTEN + name)


def _checked(spec: dict[str, Any]) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = spec.get("contents") or []
    for one in contents:
        is_named = NAME.match(one["name"]) and ROLE.match(one["role"])
        if not (is_named and SHA256.match(one["sha256"])):
            raise ValueError("content %r: no name for a folder" % (one["name"],))
    return contents


def variables(spec: dict[str, Any], top: str) -> dict[str, str]:
    """The variables that name the folders of a run's contents: that of the model itself, and those
    in which each dataset and each checkpoint has a folder. top: where they are for the run."""
    found = {}
    for one in spec.get("contents") or []:
        folder = "%s/%s" % (top, _place(one))
        if one["role"] == INPUT:
            continue  # Every run has that variable.
        if one["role"] == SINGLE:
            found["BASELOAD_" + SINGLE.upper()] = folder
        else:
            found["BASELOAD_%sS" % one["role"].upper()] = os.path.dirname(folder)
    if sealed_place(spec) is not None:
        found["BASELOAD_" + SINGLE.upper()] = "%s/%s" % (top, sealed_place(spec))
    return found


def sealed_place(spec: dict[str, Any]) -> str | None:
    """The place in the run's folder of the sealed model of a federated run; None: it has none.

    Raises: ValueError, as `places`.
    """
    model = (spec.get("federated") or {}).get("model")
    if model is None:
        return None
    if not NAME.match(str(model["name"])):
        raise ValueError("model %r: no name for a folder" % (model["name"],))
    return _place({"role": SINGLE, "name": model["name"]})


def _place(one: dict[str, Any]) -> str:
    """The folder of a content in the run's folder."""
    if one["role"] == INPUT:
        return INPUT
    return "%ss/%s" % (one["role"], one["name"])


def make(run: Run, spec: dict[str, Any], owner: tuple[int, int] | None) -> None:
    """Make the folders in which the run finds its contents, for its account alone."""
    for place in places(run.folders, spec):
        folder = run.at(place)
        for path in (os.path.dirname(folder), folder):
            if not os.path.lexists(path):
                os.mkdir(path, 0o500 if owner is not None else 0o700)
                if owner is not None:
                    os.chown(path, owner[0], owner[1])
    for one in written(spec):
        link = run.at(_place(one))
        if not os.path.isdir(os.path.dirname(link)):
            os.mkdir(os.path.dirname(link), 0o500 if owner is not None else 0o700)
            if owner is not None:
                os.chown(os.path.dirname(link), owner[0], owner[1])
        if not os.path.lexists(link):
            os.symlink(os.path.join(os.pardir, WRITTEN + one["name"]), link)


def give(path: str, user: str | None) -> None:
    """Give a folder with all that is in it to the account of a run; None: it stays as it is."""
    if not user:
        return
    entry = pwd.getpwnam(user)
    os.lchown(path, entry.pw_uid, entry.pw_gid)
    for folder, folders, names in os.walk(path):
        for name in folders + names:
            os.lchown(os.path.join(folder, name), entry.pw_uid, entry.pw_gid)


def volumes(run: Run, spec: dict[str, Any], top: str) -> list[str]:
    """podman's arguments that show a container the contents of its run, read-only but for the
    volumes that it writes to."""
    found = []
    for place, content in places(run.folders, spec).items():
        found += ["--volume", "%s:%s/%s:ro" % (content, top, place)]
    if sealed_place(spec) is not None:
        folder = sealed_place(spec)
        found += ["--volume", "%s:%s/%s:ro" % (run.at(str(folder)), top, folder)]
    for one in written(spec):
        folder = written_folder(run, one["name"])
        found += ["--volume", "%s:%s/%s:rw" % (folder, top, _place(one))]
    return found
