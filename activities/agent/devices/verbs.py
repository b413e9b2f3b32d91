"""The verbs by which a device is given its inference, and asked what it does."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from ..errors import RefusedError
from ..files import removal
from ..folders import REVISION, Folders
from ..host import disk, file_tree, processes
from ..loading import load
from . import keeper, log, spool, starting, torn, unit
from .state import DEPLOYING, FAILED, RUNNING, STOP, SWITCH, Revision, Store, revisions

POLL_S = 0.1
PROGRESS_S = 5.0
AGAIN_S = 3.0
LIMIT_S = 7000.0
BEAT_S = 2.0
WATCH_BEAT_S = 30.0
"""Between two beats of a watch that says nothing else, which lasts for as long as the device."""
WATCH_POLL_S = 0.25
OUTPUT_S = 5.0
"""How often the watch reads what of the output waits."""
MOST_REASON = 1990
CHUNK_BYTES = 1 << 18
UNUSED_S = 7 * 86_400.0
"""How long images, packages, contents and code stay that no revision and no run here needs."""
UNUSED_WITHOUT_ROOM_S = 600.0
"""The same where a revision needs the room; what is brought for this one is younger."""
LOST = "its keeper has failed or was ended from outside; restart the device, or deploy to it again"


def stage_device(request: dict[str, Any]) -> dict[str, Any]:
    """Bring a revision onto the device beside what runs there, as `stage` does; a repeat is silent.

    number: that of the assignment; run_id: name of the revision's folder. Nothing is brought for
    one that has come to its end, whose revision may be removed by now.
    Raises: RefusedError `no-unit`; as `stage`.
    """
    unit.check()
    store = Store(Folders(request.get("root", "")))
    store.make()
    if int(request["number"]) <= int(store.state()["done"]):
        return {}
    run_id = store.folders.run(request["run_id"]).run_id
    revision = store.revision(run_id)
    with removal.unless_removed(revision):
        revision.make(request["spec"].get("owner"))
        part = revision.at(REVISION + ".part")
        with open(part, "w") as file:
            file.write("%d\n" % int(request["number"]))
        os.rename(part, revision.at(REVISION))  # One without its number would be removed as old.
    lock = store.lock()
    try:
        # Older ones that were never switched to make room first; nothing that runs is touched.
        keeper.tidy(store, store.state(), run_id)
    finally:
        os.close(lock)
    torn.begin(revision, request.get("image") or request["spec"].get("image"))
    _make_room(store, request)
    load("runs.stage:stage")(request)
    torn.end(revision)
    return {}


def _make_room(store: Store, request: dict[str, Any]) -> None:
    """Remove what nothing here has used for a while, and, where room is needed, what is stored."""
    prune = load("runs.clean:prune")
    asked = {
        "root": store.folders.root,
        "keep_code": [request.get("code_sha256")],
        "tombstones_s": keeper.TOMBSTONES_S,
    }
    prune({**asked, "max_age_s": UNUSED_S})
    wanted = disk.wanted_bytes(request.get("disk_size_gb"))
    if disk.free_bytes(store.path) >= wanted:
        return
    prune({**asked, "max_age_s": UNUSED_WITHOUT_ROOM_S})
    for revision in revisions(store.folders):
        if spool.has_output(revision):
            spool.drop_stored(revision, lambda: disk.free_bytes(store.path) >= wanted)


def switch_device(request: dict[str, Any]) -> dict[str, Any]:
    """Run a staged revision in the place of what runs, and wait until that is decided.

    health: see `health.py`. A repeat answers what it came to; an older number does nothing.
    Raises: RefusedError `not-staged`, `no-unit`, `systemd`, `no-content`; `unsettled`, when it
    is not decided within the limit.
    """
    asked = {
        "number": int(request["number"]),
        "kind": SWITCH,
        "run_id": str(request["run_id"]),
        "health": request.get("health") or {},
    }
    return _ask(request, asked)


def stop_device(request: dict[str, Any]) -> dict[str, Any]:
    """Stop the inference, also for the next boot; a repeat changes nothing.

    Raises: as `switch_device`.
    """
    return _ask(request, {"number": int(request["number"]), "kind": STOP})


def _ask(request: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    unit.check()
    store = Store(Folders(request.get("root", "")))
    store.make()
    number = asked["number"]
    is_other = False
    lock = store.lock()
    try:
        state = store.state()
        newest = max(int(state["done"]), int(store.asked().get("number", 0)))
        if number < newest:
            words = "request %d was made since, so %d is not followed" % (newest, number)
            return {**_does(store), "failed": words}
        is_new = number > newest
        if is_new:
            _check_staged(store, asked)
            is_other = unit.install(store)
            store.ask(asked)
    finally:
        os.close(lock)
    if int(store.state()["done"]) < number:
        if is_other and keeper.is_there(store):
            unit.restart(store)
        else:
            unit.start(store)
        _await(store, number)
    state = store.state()
    if int(state["done"]) > number:
        words = "request %d was made since" % state["done"]
        return {**_does(store), "failed": words}
    return {**_does(store), "failed": state["failed"] and state["failed"][:MOST_REASON]}


def _check_staged(store: Store, asked: dict[str, Any]) -> None:
    """Raises: RefusedError `not-staged`, `no-content`."""
    if asked["kind"] == STOP:
        return
    revision = store.revision(asked["run_id"])
    spec = revision.read("spec.json")
    if spec is None or not revision.is_revision:
        words = "revision %s: it was not staged on this device"
        raise RefusedError("not-staged", words % revision.run_id)
    load("runs.start:check_contents")(revision, spec)


def _await(store: Store, number: int) -> None:
    """Wait until the request with this number is done. Raises: RefusedError `unsettled`."""
    deadline = time.monotonic() + LIMIT_S
    said_at = again_at = time.monotonic()
    while int(store.state()["done"]) < number:
        now = time.monotonic()
        if now > deadline:
            words = "request %d: not decided after %d s"
            raise RefusedError("unsettled", words % (number, LIMIT_S))
        if now > said_at + PROGRESS_S:
            said_at = now
            trial = store.state()["trial"] or {}
            sys.stderr.write("request %d: %s\n" % (number, trial.get("phase", "waiting")))
            sys.stderr.flush()
        if now > again_at + AGAIN_S:
            again_at = now
            if not keeper.is_there(store):
                unit.start(store)  # It may have been about to end when the request came.
        time.sleep(POLL_S)


def device_status(request: dict[str, Any]) -> dict[str, Any]:
    """What the device runs, what of its output waits, and the present boot.

    done: the number of the last request that has come to its end.
    `no_unit_reason` says why this machine can start nothing at its boot, so that it is no device.
    """
    store = Store(Folders(request.get("root", "")))
    return {
        **_does(store),
        "done": int(store.state()["done"]),
        "boot_id": processes.boot_id(),
        "no_unit_reason": unit.why_not(),
    }


def _does(store: Store) -> dict[str, Any]:
    """What the device does, and what of its output waits."""
    return {
        "run": _run_of(store),
        "output": spool.report(revisions(store.folders), spool.gone(store)),
    }


def _run_of(store: Store) -> dict[str, Any]:
    """What the device does: number, status, exit_code and reason."""
    state = store.state()
    current = state["current"] or {}
    status, reason = state["status"], str(state["reason"])[:MOST_REASON]
    is_of_this_boot = state["boot_id"] == processes.boot_id()
    if status in (RUNNING, DEPLOYING) and is_of_this_boot and not _is_kept(store):
        again = store.state()  # It may have ended properly just now.
        status, reason = again["status"], str(again["reason"])[:MOST_REASON]
        if status in (RUNNING, DEPLOYING):
            status, reason = FAILED, LOST
        state = again
    return {
        "number": int(current.get("number", 0)),
        "status": status,
        "exit_code": state["exit_code"],
        "reason": reason,
    }


def _is_kept(store: Store) -> bool:
    """Whether a keeper lives, or systemd is about to start one again that has failed."""
    if keeper.is_there(store):
        return True
    try:
        return unit.why_not() is None and unit.is_active(store)
    except RefusedError:  # systemd does not answer now.
        return False


def clear_device(request: dict[str, Any]) -> dict[str, Any]:
    """End the inference, and remove all that the device has of it; a repeat changes nothing.

    What jobs on this machine use as well stays, see `clearing.py`.
    lost_files: of the output, those that were not stored when their revision was removed.
    Raises: RefusedError `not-removed`, `systemd`.
    """
    store = Store(Folders(request.get("root", "")))
    unit.remove(store)
    load("devices.clearing:note")(store)
    left = []
    for revision in revisions(store.folders):
        starting.end_left(revision)
        spool.store_last(revision)
        spool.note_gone(store, revision)
        if not keeper.remove(revision):
            left.append(revision.run_id)
    if left:
        raise RefusedError("not-removed", "revisions could not be removed: %s" % ", ".join(left))
    load("devices.clearing:clear")(store)
    lost_files = spool.gone(store)["lost_files"]
    if os.path.lexists(store.path):
        file_tree.remove(store.path)
    return {"lost_files": lost_files}


def watch_device(request: dict[str, Any]) -> None:
    """Write a frame when what the device does changes, and a beat each 30 s, until stdin ends."""
    store = Store(Folders(request.get("root", "")))
    said: dict[str, Any] = {}
    beat_at = output_at = 0.0
    while True:
        now, does = time.monotonic(), said
        if not said or said["run"]["reason"] != LOST:  # Else systemd would be asked all the time.
            does = {**said, "run": _run_of(store)}
        if now >= output_at:
            output_at, does = now + OUTPUT_S, _does(store)
        if does != said:
            said = does
            _send({"kind": "device", **does, "boot_id": processes.boot_id()})
        if now >= beat_at:
            beat_at = now + WATCH_BEAT_S
            _send({"kind": "beat"})
        if _is_closed(WATCH_POLL_S):
            return


def read_device_log(request: dict[str, Any]) -> None:
    """Write the log of what runs now as frames: a line, and as many bytes as it says.

    offset: from which byte; last_lines instead: so many of its end, in most_bytes at most. run_id:
    of the log that is meant; of another one nothing is written. follow: whether to go on until
    stdin ends, or what runs does, with a beat each 2 s. A frame's offset shows what was left out
    because the log is bounded.
    Raises: RefusedError `no-log`.
    """
    store = Store(Folders(request.get("root", "")))
    revision = _logged(store)
    if request.get("run_id") not in (None, revision.run_id):
        return
    first, end = log.bounds(revision)
    offset = int(request.get("offset") or 0)
    if request.get("last_lines") is not None:
        most_bytes = int(request.get("most_bytes") or CHUNK_BYTES)
        offset = log.begin_of_last(revision, int(request["last_lines"]), most_bytes)
    offset, beat_at = max(first, offset), 0.0
    while True:
        goes_on = bool(request.get("follow")) and _is_logging(store, revision)
        chunk = log.read(revision, offset, CHUNK_BYTES)
        if chunk:
            head = {"kind": "log", "run_id": revision.run_id, "offset": offset}
            _send({**head, "length": len(chunk)}, chunk)
            offset += len(chunk)
            continue
        first, end = log.bounds(revision)
        if first > offset:
            offset = first
            continue
        if not goes_on or end < offset or not revision.has("log"):
            return
        if time.monotonic() >= beat_at:
            beat_at = time.monotonic() + BEAT_S
            _send({"kind": "beat"})
        if _is_closed(WATCH_POLL_S):
            return


def _logged(store: Store) -> Revision:
    """The revision whose log is that of what runs. Raises: RefusedError `no-log`."""
    state = store.state()
    named = state["trial"] or state["current"]
    if named is None:
        raise RefusedError("no-log", "the device has no inference, so there is no log")
    revision = store.revision(named["run_id"])
    if not revision.has("log"):
        raise RefusedError("no-log", "%s: it has no log" % revision.run_id)
    return revision


def _is_logging(store: Store, revision: Revision) -> bool:
    """Whether the log of a revision may still grow."""
    state = store.state()
    named = [one["run_id"] for one in (state["trial"], state["current"]) if one]
    return revision.run_id in named and _run_of(store)["status"] in (RUNNING, DEPLOYING)


def _is_closed(wait_s: float) -> bool:
    """Wait a little; whether stdin has ended."""
    ready, _, _ = select.select([0], [], [], wait_s)
    return bool(ready) and not os.read(0, 4096)


def _send(header: dict[str, Any], payload: bytes = b"") -> None:
    waiting = memoryview(json.dumps(header).encode() + b"\n" + payload)
    while waiting:
        waiting = waiting[os.write(1, waiting) :]
