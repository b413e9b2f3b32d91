"""The twelve points in a machine's life at which a fault may come, as anybody can see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Life:
    """What is written down of one machine that was made for a job, and what its provider shows.

    vm: the status of the instance, None: there is none of its name.
    """

    lease: str
    node: str
    job: str | None
    vm: str | None
    machine: str = ""


LIVES = """
    SELECT leases.name, leases.status, nodes.status, jobs.status FROM leases
    JOIN nodes ON nodes.id = leases.holder_id
    LEFT JOIN allocations ON allocations.node_id = nodes.id
    LEFT JOIN jobs ON jobs.id = allocations.job_id
    WHERE nodes.type = 'ephemeral' AND leases.status NOT IN ('released', 'refused')
"""
Point = Callable[[Life], bool]
POINTS: dict[str, Point] = {
    "reserved": lambda at: at.lease == "reserved",
    "creating": lambda at: at.lease == "creating" and at.vm is None,
    "being-made": lambda at: at.lease == "creating" and at.vm is not None,
    "waiting-for-ssh": lambda at: at.lease == "waiting_for_ssh",
    "connecting": lambda at: (at.lease, at.node) == ("ready", "connecting"),
    "inspecting": lambda at: at.node == "inspecting",
    "preparing": lambda at: at.node == "preparing",
    "placed": lambda at: (at.node, at.job) == ("active", "waiting_for_resources"),
    "staging": lambda at: at.job in ("provisioning", "waiting_for_data"),
    "running": lambda at: at.job == "running",
    "uploading": lambda at: at.job == "uploading",
    "releasing": lambda at: at.lease == "releasing",
}
