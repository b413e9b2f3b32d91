"""The volumes that a run writes to: copies of its own, which the platform takes content from.

<run>/volume-<name>/       the files, of the run's account
<run>/volumes/<name>       where the command finds them: a link to that folder
<run>/volumes.json         the volumes that are opened, and since which start of the machine

A volume that a run reads is a content as any other. One that it writes to is taken out of the
contents of the node, so that nothing is on the disk twice, or copied where others need the content.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..errors import RefusedError
from ..files import packing
from ..files.removal import unless_removed
from ..folders import Folders, Run, take_lock
from ..host import file_tree, processes, run_contents
from . import store

OPENED = "volumes.json"
WRITTEN_SINCE = "0"
"""The mark of a volume whose run has begun: no files have it, so what is written will be stored."""


def open_volumes(request: dict[str, Any]) -> dict[str, Any]:
    """Give a staged run the volumes that it writes to; a repeat changes nothing.

    Answers `volumes`: of each its `name`, and the `mark` of its files (`fingerprint_volume`) as the
    run finds them; `WRITTEN_SINCE`, when it has begun.
    Raises: RefusedError `no-content`, when a content is not here; `not-staged`, `removed`.
    """
    folders = Folders(request.get("root", ""))
    run = folders.run(request["run_id"])
    with unless_removed(run):
        lock = take_lock(run.at("stage.lock"), wait=True)
        try:
            spec = run.read("spec.json")
            if spec is None:
                raise RefusedError("not-staged", "run %s: it was not staged" % run.run_id)
            written = run_contents.written(spec)
            for one in written:
                if not is_open(run, one["name"]):
                    _open(run, one, spec.get("user"))
            _need_no_more(run, spec)
        finally:
            os.close(lock or 0)
    return {"volumes": [_marked(run, one["name"]) for one in written]}


def is_open(run: Run, name: str) -> bool:
    """Whether the run has this volume as it should be, also after a power cut.

    What a command has written counts, however the machine has ended since.
    """
    noted = (run.read(OPENED) or {}).get(name)
    is_sound = _has_begun(run) or noted == processes.boot_id()
    return noted is not None and is_sound and os.path.isdir(run_contents.written_folder(run, name))


def opened(run: Run) -> set[str]:
    """The contents that a staged run has as volumes of its own, and in no other role."""
    contents = (run.read("spec.json") or {}).get("contents") or []
    lacking = [one for one in contents if not (one.get("writes") and is_open(run, one["name"]))]
    return {one["sha256"] for one in contents} - {one["sha256"] for one in lacking}


def fingerprint_volume(request: dict[str, Any]) -> dict[str, Any]:
    """The size of a volume, and a fingerprint that changes with any file; no file is read.

    Raises: RefusedError `no-folder`, `bad-folder`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    return packing.fingerprint(run, [_folder(request["name"])])


def pack_volume(request: dict[str, Any]) -> None:
    """Write a volume as tar.gz to stdout, each file as it was at one moment.

    most_bytes: of all its files together.
    Raises: RefusedError as `pack_state`; the caller then drops the archive.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    folder = _folder(request["name"])
    packing.pack(run, [folder], settled=True, most_bytes=int(request["most_bytes"]))


def _marked(run: Run, name: str) -> dict[str, Any]:
    mark = packing.fingerprint(run, [_folder(name)])["mark"]
    return {"name": name, "mark": WRITTEN_SINCE if _has_begun(run) else mark}


def _has_begun(run: Run) -> bool:
    return run.has("process.json") or run.has("exit.json")


def _folder(name: str) -> str:
    if not isinstance(name, str) or not run_contents.NAME.match(name):
        raise RefusedError("bad-folder", "volume %r: no name of a folder" % (name,))
    return run_contents.WRITTEN + name


def _open(run: Run, one: dict[str, Any], user: str | None) -> None:
    folders, sha256, name = run.folders, one["sha256"], one["name"]
    target = run_contents.written_folder(run, name)
    part = target + ".part"
    for left in (part, target):
        if os.path.lexists(left):
            file_tree.remove(left)
    with store.locked(folders, sha256):
        content = store.take(folders, sha256)
        if content is None:
            words = "run %s: the volume %s is not on this node"
            raise RefusedError("no-content", words % (run.run_id, name))
        if sha256 in store.needed(folders, but=run.run_id) or _is_read(run, one):
            store.check_room(folders, sha256)
            shutil.copytree(content, part, symlinks=True)
        else:
            os.rename(content, part)
            store.remove(folders, sha256)
    run_contents.give(part, user)
    os.chmod(part, 0o700)
    os.rename(part, target)
    run.write(OPENED, dict(run.read(OPENED) or {}, **{name: processes.boot_id()}))


def _is_read(run: Run, written: dict[str, Any]) -> bool:
    """Whether the run has the same content in another role as well, or as another volume."""
    contents = (run.read("spec.json") or {}).get("contents") or []
    return len([one for one in contents if one["sha256"] == written["sha256"]]) > 1


def _need_no_more(run: Run, spec: dict[str, Any]) -> None:
    """Let the contents go that the run has copies of."""
    kept = [one["sha256"] for one in spec.get("contents") or [] if not one.get("writes")]
    store.need(run, sorted(set(kept)))
