"""The trial of a confinement: whether this machine can confine runs, before one is sent here.

It does in a process of its own what a confinement rests on. A machine that passes may refuse a run
all the same, such as for want of memory; one that does not gets no run of a federated job.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import List, Tuple

from ..errors import RefusedError
from ..folders import Folders
from ..host import cgroups, inspection, run_root, trials
from ..host.mount_namespace import CLONE_NEWNS, MS_REC, mount
from . import confinement, hardening, links, opening, root

SWAP_TRIAL = "confinement-trial"


def why_not(folders: Folders) -> str | None:
    """Why this machine can confine no run of a federated job; None: it can."""
    if os.geteuid() != 0:
        return confinement.NOT_ROOT
    try:
        opening.check_cipher()
        _keep_off_swap(folders)
    except RefusedError as refused:
        return str(refused)
    return hardening.why_not() or trials.failure_of(lambda: _confine(folders))


def _confine(folders: Folders) -> None:
    """Confine this process as a run. Raises: OSError, which names what cannot be had."""
    steps: List[Tuple[str, Callable[[], None]]] = [
        ("a network namespace", _enter_network),
        ("an IPC namespace", lambda: run_root.unshare(links.CLONE_NEWIPC)),
        ("a mount namespace", _enter_mounts),
        ("a root in memory (tmpfs)", lambda: root.mount_memory(folders.root, {})),
        ("a root of its own (pivot_root)", lambda: run_root.pivot(folders.root)),
        ("a filter of system calls (seccomp)", hardening.harden),
    ]
    for what, step in steps:
        try:
            step()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise OSError("%s cannot be had: %s" % (what, reason)) from error


def _enter_network() -> None:
    run_root.unshare(links.CLONE_NEWNET)
    links.raise_loopback()


def _enter_mounts() -> None:
    run_root.unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | run_root.MS_PRIVATE)


def _keep_off_swap(folders: Folders) -> None:
    """Keep a cgroup off swap, where the machine has swap and no systemd that does it.

    Raises: RefusedError `swap`.
    """
    if not hardening.has_swap() or "systemd" in inspection.runtimes():
        return
    run, spec = folders.run(SWAP_TRIAL), {"runtime": "process"}
    try:
        cgroups.make(run, spec)
        hardening.keep_off_swap(run, spec)
    finally:
        cgroups.end(run)
