"""The idle workload of this machine: what is wanted, how it gives way to runs, what it has done."""

from __future__ import annotations

import os
import time
import zlib
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, Run, forget, read_json, take_lock, write_json
from ..host import job_accounts
from ..loading import load
from . import lease

FOLDER = "idle"
WORKLOAD = "workload.json"
FIGURES = "figures.json"
LOCK = "keeper.lock"
PREFIX = "idle-workload-"
NOTE = "idle-"
GRACE_S = 1.0
MARGIN_S = 1.0
"""How much longer its supervisor has; then all is killed from here, within five seconds."""
END_OF_KEEPER_S = 10.0
POLL_S = 0.05


def root_of(folders: Folders) -> Folders:
    """The agent root of the idle workload alone."""
    return Folders(os.path.join(folders.root, FOLDER))


def wanted(folders: Folders) -> dict[str, Any] | None:
    """The workload that is switched on; None: none is, or its lease has ended."""
    workload = switched_on(folders)
    return None if workload is None or lease.has_ended(root_of(folders)) else workload


def switched_on(folders: Folders) -> dict[str, Any] | None:
    """The workload that was switched on last, whether or not its lease has ended; None: none."""
    return read_json(os.path.join(folders.root, FOLDER, WORKLOAD))


def switch(request: dict[str, Any]) -> dict[str, Any]:
    """Switch the idle workload on, to another one, or off; return the answer of `report`.

    workload: `revision`, `command` or `image` with `command`, `environment`, and the `node_id` of
    the node that it is for; None: off. After this answer nothing of an earlier workload runs. The
    lease of the workload begins anew.
    Raises: RefusedError `needs-root`; `tree-alive`, when it could not be ended.
    """
    folders = Folders(request.get("root", ""))
    workload = request.get("workload")
    if workload is None:
        end(folders)
        return report(folders)
    if os.geteuid() != 0:
        words = "idle workload: the node's account is not root: it would have no account of its own"
        raise RefusedError("needs-root", words)
    own = root_of(folders)
    own.make()
    lease.renew(own, workload)
    if switched_on(folders) != workload:
        write_json(os.path.join(own.root, WORKLOAD), workload)
        os.makedirs(job_accounts.ACCOUNTS, mode=0o700, exist_ok=True)
        write_json(_note(folders), {"root": own.root})
        end_runs(own)
    load("idle.keeper:launch")(folders)
    return report(folders)


def end(folders: Folders) -> None:
    """Switch the idle workload off, and wait until nothing of it is left. A repeat changes nothing.

    Raises: RefusedError `tree-alive`, when it could not be ended.
    """
    own = root_of(folders)
    if not os.path.isdir(own.root):
        return
    forget(os.path.join(own.root, WORKLOAD))  # Before all else: the keeper starts no other.
    end_runs(own)
    deadline = time.monotonic() + END_OF_KEEPER_S
    while is_kept(folders) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    end_runs(own)
    load("idle.keeper:count_ended")(folders)
    forget(_note(folders))


def end_of_others(folders: Folders, node_id: str | None) -> None:
    """End the idle workload that an earlier node of this machine has left, perhaps another's.

    Raises: RefusedError `tree-alive`.
    """
    workload = switched_on(folders)
    if node_id and workload is not None and workload.get("node_id") != node_id:
        end(folders)


def give_way(folders: Folders, spec: dict[str, Any]) -> None:
    """End every idle workload on this machine, for a run whose folder exists already.

    It is called by each staging and each start, and waits until nothing of the workload is left.
    Raises: RefusedError `tree-alive`, when one of its processes cannot be killed.
    """
    if spec.get("is_idle_workload"):
        return
    for root in _roots(folders):
        end_runs(Folders(root))


def end_runs(own: Folders) -> None:
    """End all workloads in this root. Raises: RefusedError `tree-alive`."""
    for run in open_runs(own):
        load("runs.end:end_run")(run, GRACE_S, MARGIN_S)


def open_runs(folders: Folders) -> list[Run]:
    """The runs in a root that have not ended, or may start yet."""
    runs = [folders.run(run_id) for run_id in folders.run_ids()]
    return [run for run in runs if not run.has("exit.json")]


def is_busy(folders: Folders) -> bool:
    """Whether a run is on this machine, in this root or in another one."""
    if open_runs(folders):
        return True
    for _, holder in job_accounts.holders():
        run = Folders(str(holder["root"])).run(str(holder["run_id"]))
        if not run.run_id.startswith(PREFIX) and not run.has("exit.json"):
            return True
    return False


def is_kept(folders: Folders) -> bool:
    """Whether the keeper runs."""
    path = os.path.join(folders.root, FOLDER, LOCK)
    if not os.path.exists(path):
        return False
    lock = take_lock(path, wait=False)
    if lock is None:
        return True
    os.close(lock)
    return False


def report(folders: Folders) -> dict[str, Any]:
    """What the workload does and has done on this machine.

    state: `off`, `waiting` or `running`; revision: of what is switched on; run_s: for how long it
    has run in all; energy_joules: what the GPUs have used meanwhile, as far as their driver has
    said it, which is for energy_s; None: it has never said it. reason: why it could not start.
    """
    own, workload = root_of(folders), wanted(folders)
    figures = read_json(os.path.join(own.root, FIGURES)) or {}
    states = [load("runs.status:state_of")(run) for run in open_runs(own)]
    running = [state for state in states if state["state"] == "running"]
    name = "off" if workload is None else "running" if running else "waiting"
    return {
        "state": name,
        "revision": str((workload or {}).get("revision", "")),
        "run_s": figures.get("run_s", 0.0) + sum(state["elapsed_s"] for state in states),
        "energy_joules": figures.get("energy_joules"),
        "energy_s": figures.get("energy_s", 0.0),
        "reason": figures.get("reason") or "",
    }


def _roots(folders: Folders) -> list[str]:
    """The roots of all idle workloads of this machine; without root that of this agent alone."""
    own = root_of(folders).root
    found = {own} if os.path.isdir(own) else set()
    try:
        names = os.listdir(job_accounts.ACCOUNTS)
    except OSError:  # There is none yet, or this account may not read it.
        return sorted(found)
    for name in names:
        if name.startswith(NOTE):
            note = read_json(os.path.join(job_accounts.ACCOUNTS, name)) or {}
            found.add(str(note.get("root") or own))
    return sorted(found)


def _note(folders: Folders) -> str:
    """The file that names this root to the agents of other roots on this machine."""
    name = "%s%08x.json" % (NOTE, zlib.crc32(os.fsencode(folders.root)))
    return os.path.join(job_accounts.ACCOUNTS, name)
