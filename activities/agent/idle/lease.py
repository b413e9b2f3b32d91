"""The lease of the idle workload: for how long it may run without the platform's contact.

The platform renews it each time that it says that the workload is wanted, about once an hour. So a
machine that was removed while nobody could reach it, or that its platform has lost, ends the
workload by itself.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..folders import Folders, read_json, write_json
from ..host import processes

LEASE = "lease.json"
LEASE_S = 24 * 3600.0


def renew(own: Folders, workload: dict[str, Any]) -> None:
    """Begin the lease of a workload anew. own: the agent root of the idle workload."""
    lease_s = float(workload.get("lease_s") or LEASE_S)
    write_json(os.path.join(own.root, LEASE), {**_now(), "lease_s": lease_s})


def has_ended(own: Folders) -> bool:
    """Whether the lease has ended; so it has where there is none.

    After a restart of the machine the wall clock counts. One that was set back makes no lease
    longer than from the restart on, because the keeper notes each restart.
    """
    found = read_json(os.path.join(own.root, LEASE))
    if found is None:
        return True
    now = _now()
    clock = "uptime_s" if found["boot_id"] == now["boot_id"] else "time_s"
    return bool(now[clock] - found[clock] >= found["lease_s"])


def note_restart(own: Folders) -> None:
    """Count what is left of the lease by the clock of this boot, which nobody sets."""
    path = os.path.join(own.root, LEASE)
    found, now = read_json(path), _now()
    if found is not None and found["boot_id"] != now["boot_id"]:
        gone_s = max(0.0, now["time_s"] - found["time_s"])
        write_json(path, {**now, "lease_s": max(0.0, found["lease_s"] - gone_s)})


def ended_reason(own: Folders) -> str:
    """Why a workload whose lease has ended does not run."""
    found = read_json(os.path.join(own.root, LEASE)) or {}
    hours = float(found.get("lease_s") or 0) / 3600
    return "the platform has not been in contact for %.3g h: ended until it is again" % hours


def _now() -> dict[str, Any]:
    return {
        "boot_id": processes.boot_id(),
        "uptime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "time_s": time.time(),
    }
