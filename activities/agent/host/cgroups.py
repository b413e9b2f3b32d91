"""A cgroup for each run where root may make one: it holds all that the command forks, for good.

Only for the plain runtime: systemd and podman have cgroups of their own. Without one, a run is
ended by its process tree and its account.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from typing import Any

from ..folders import Run
from . import process_tree, processes

PARENT = "baseload"
MOUNTS = "/proc/self/mounts"
MOST_TASKS = 32768
"""The most processes and threads of a run whose spec does not say."""
VERSION_1 = ("pids",)
"""The controllers that are used of version 1, each of which has a hierarchy."""


def folders_of(run: Run) -> list[str]:
    """Where the run's cgroups are, or would be; none without root.

    The name has a mark of the root folder: several control planes may use one machine.
    """
    if os.geteuid() != 0:
        return []
    name = "%s-%08x" % (run.run_id, zlib.crc32(os.fsencode(run.folders.root)))
    return [os.path.join(top, PARENT, name) for top in _hierarchies()]


def _hierarchies() -> list[str]:
    found = []
    try:
        with open(MOUNTS) as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    for _, path, kind, options, *_ in lines:
        is_used = kind == "cgroup" and set(VERSION_1) & set(options.split(","))
        if kind == "cgroup2" or is_used:
            found.append(path)
    return found


def most_tasks(spec: dict[str, Any]) -> int:
    """The most processes and threads that a run may have at once."""
    return int(spec.get("most_tasks") or MOST_TASKS)


def make(run: Run, spec: dict[str, Any]) -> list[str]:
    """Make the run's cgroups; return those that there are, none where root may make none."""
    made = []
    for folder in folders_of(run):
        with contextlib.suppress(OSError):
            parent = os.path.dirname(folder)
            os.makedirs(parent, exist_ok=True)
            for above in (os.path.dirname(parent), parent):
                with contextlib.suppress(OSError):  # Version 1, or no such controller here.
                    _write(above, "cgroup.subtree_control", "+pids")
            os.makedirs(folder, exist_ok=True)
            made.append(folder)
            with contextlib.suppress(OSError):
                _write(folder, "pids.max", str(most_tasks(spec)))
    return made


def enter(folders: list[str]) -> None:
    """Put this process, and all that it will fork, into the cgroups."""
    for folder in folders:
        with contextlib.suppress(OSError):
            _write(folder, "cgroup.procs", "0")


def end(run: Run) -> list[int]:
    """KILL all processes of the run's cgroups, and remove these; return the processes that stay."""
    folders = [folder for folder in folders_of(run) if os.path.isdir(folder)]
    deadline = time.monotonic() + process_tree.KILL_S
    while found := [one for folder in folders for one in _processes(folder)]:
        if time.monotonic() > deadline:
            return sorted({one.pid for one in found})
        for folder in folders:
            with contextlib.suppress(OSError):  # Version 1, or an old kernel.
                _write(folder, "cgroup.kill", "1")
        process_tree.send(found, signal.SIGKILL)
        time.sleep(process_tree.POLL_S)
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return []


def _processes(folder: str) -> list[processes.Process]:
    """The running processes of one cgroup; zombies are in those of version 2."""
    try:
        with open(os.path.join(folder, "cgroup.procs")) as file:
            found = [processes.find(int(line)) for line in file if int(line) > 0]
    except OSError:
        return []
    return [one for one in found if one is not None and not one.has_ended]


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
