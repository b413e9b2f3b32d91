"""The verbs that remove runs and unused caches, and that end orphaned runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

from ..errors import RefusedError
from ..files import code, removal
from ..files.removal import names_in
from ..folders import REVISION, Folders, Run
from ..host import images, job_accounts
from ..loading import load
from ..packages.environments import KEY, forget
from . import end, status, supervisor

ENDED_AT_ONCE = 16


def clean(request: dict[str, Any]) -> dict[str, Any]:
    """Remove the folders of runs, and the files that their accounts left elsewhere.

    Runs that are still running are kept, and listed in `kept`, as are revisions of a device.
    Raises: RefusedError `not-removed`, after trying all, when the folder of one is still there.
    """
    folders = Folders(request.get("root", ""))
    removed: list[str] = []
    kept: list[str] = []
    left: list[str] = []
    for run_id in request.get("run_ids", []):
        run = folders.run(run_id)
        if run.has(REVISION) or status.state_of(run)["state"] in ("running", "lost"):
            kept.append(run_id)
            continue
        (removed if remove_run(run) else left).append(run_id)
    if left:
        raise RefusedError("not-removed", "runs could not be removed: %s" % ", ".join(left))
    return {"removed": removed, "kept": kept}


def remove_run(run: Run) -> bool:
    """Whether all of a run is gone; what it has left never keeps other runs from being removed."""
    try:
        spec = run.read("spec.json") or {}
        if supervisor.end_rest(run, spec):
            return False
        if "scratch" in (spec.get("bindings") or {}):
            load("datastores.verbs:discard_scratch")(run, spec)
        # Before the folder goes: without the folder, another run may get the run's account.
        job_accounts.forget_files(spec.get("user"))
        return removal.remove(run)
    except Exception as error:  # noqa: BLE001 - whatever this run has left
        sys.stderr.write("removing %s: %r\n" % (run.run_id, error))
        return False


def orphans(request: dict[str, Any]) -> dict[str, Any]:
    """End the runs of `among` that are not in `live`; return their states, with their seconds.

    among: the runs that were here before `live` was read; a newer run may be missing in `live`. A
    run that is staged, in part or whole, and has not started is ended as well, so that it never
    starts.
    leaving: runs that are ended as well, and that have ended if they are not here.
    owner: the control plane that owns the runs; runs of other control planes are not touched.

    An ended run is reported again until it is cleaned, so that a lost answer loses no seconds;
    `told_before_s` is how long ago the run was first reported, 0 for the first time. A run with a
    process that is still alive, such as one in uninterruptible sleep, is in `alive` instead, with
    the seconds that it has run so far and, as `why`, what is left of it. `cache_full`: why the
    region's cache here could not keep what it was sent last.
    """
    folders = Folders(request.get("root", ""))
    live = set(request["live"])
    leaving = set(request.get("leaving", ()))
    among = set(request["among"]) | leaving
    owner = request.get("owner")
    chosen = [folders.run(run_id) for run_id in sorted({*folders.run_ids(), *leaving})]
    chosen = [run for run in chosen if run.run_id in among and run.run_id not in live]
    # What a device runs for ever is no job's, and ends by the verbs of devices alone.
    chosen = [run for run in chosen if not run.has(REVISION)]
    chosen = [run for run in chosen if _is_ours(run, owner, run.run_id in leaving)]
    ended = {}
    alive = {}
    for run, why in _end_all(chosen, float(request.get("grace_s") or 0)):
        state = status.state_of(run)
        if why:
            alive[run.run_id] = dict(state, why=why)
        else:
            ended[run.run_id] = dict(state, told_before_s=_reported_before_s(run))
    cache = os.path.join(folders.root, "cache")
    full = load("cache.store:full_reason")(cache) if os.path.isdir(cache) else None
    return {"ended": ended, "alive": alive, "cache_full": full}


def _is_ours(run: Run, owner: str | None, is_leaving: bool) -> bool:
    """Whether this control plane may end the run; a folder that nobody owns may be anybody's."""
    owned_by = run.owner()
    if owned_by is None and not is_leaving and status.state_of(run)["state"] == "unknown":
        return False
    return (owned_by or owner) == owner


def _end_all(runs: list[Run], grace_s: float) -> list[tuple[Run, str]]:
    """End runs beside each other; return each with what of it is still alive, empty if nothing is.

    One that cannot be killed takes half a minute, and there may be one for each GPU.
    """
    # The import is slow, and the other verbs of this file do not need it.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    def end_one(run: Run) -> str:
        try:
            end.end_run(run, grace_s)
        except RefusedError as refused:
            return str(refused)
        return ""

    with ThreadPoolExecutor(ENDED_AT_ONCE) as pool:
        return list(zip(runs, pool.map(end_one, runs)))


def _reported_before_s(run: Run) -> float:
    """How long ago the run was first reported, by this node's clock alone, which may be wrong."""
    try:
        return max(0.0, time.time() - os.stat(run.at("told")).st_mtime)
    except FileNotFoundError:
        with contextlib.suppress(OSError):  # A full disk: the next report is again the first.
            run.write("told", {}, durable=False)
        return 0.0


def prune(request: dict[str, Any]) -> dict[str, Any]:
    """Remove cached code, contents, packages, system layers and images without use for `max_age_s`.

    keep_code: hashes to keep whatever their age.
    tombstones_s: how long it is known that a run was removed; `max_age_s` if it is missing.
    """
    folders = Folders(request.get("root", ""))
    max_age_s = float(request["max_age_s"])
    removal.forget(folders, float(request.get("tombstones_s", max_age_s)))
    oldest = time.time() - max_age_s
    keep = set(request.get("keep_code", []))
    in_use = {spec.get("packages_path") for spec in folders.open_specs()}
    uploads = [name for name in names_in(folders.code) if name not in keep]
    removed = ["code/" + name for name in uploads if code.forget(folders, name, oldest)]
    removed += load("contents.store:prune")(folders, oldest)
    unused = [path for path in _environments(folders) if path not in in_use]
    removed += [os.path.relpath(path, folders.root) for path in unused if forget(path, oldest)]
    removed += load("packages.system_layers:prune")(folders, oldest)
    load("datastores.kernel:unmount_unused")(folders)
    removed += ["images/" + image for image in images.prune(folders, oldest)]
    return {"removed": removed}


def _environments(folders: Folders) -> list[str]:
    """The virtual environments of any runs, whole or not."""
    return [
        os.path.join(folder, name)
        for folder in (folders.packages, folders.owned_packages)
        for name in names_in(folder)
        if KEY.match(name) and os.path.isdir(os.path.join(folder, name))
    ]
