"""Leases: whatever costs has an open lease, and ends."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from tests.simulation.contracts import LeaseView
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import (
    Part,
    asks,
    calls_fail,
    calls_keep_failing,
    goes_wrong,
    together,
)
from tests.simulation.plan import Draft

LIFECYCLE = "LeaseLifecycle"
FINAL = ("released", "refused")
ENDS_WITHIN = timedelta(minutes=12)
"""After its request, a lease at least is being released; a late server or relay holds it up."""


def _leases(draft: Draft) -> int:
    return 8 if draft.has_cloud else 0


def _always(life: Life) -> Iterable[str]:
    """A machine that runs has a lease that is not ended, unless its cloud made it long after that:
    such a one is ended by the reconciliation."""
    leases = tuple(life.rows.leases())
    if not life.has_forgotten:
        yield from _end_as_asked(life, leases)
    open_names = {one.name for one in leases if one.status not in FINAL}
    for machine in life.world.cloud_machines():
        is_here = machine.is_running and (life.is_at_rest or not machine.came_late)
        if is_here and machine.name not in open_names:
            yield f"{machine.name} runs and costs, and no open lease has it"


def _end_as_asked(life: Life, leases: Sequence[LeaseView]) -> Iterable[str]:
    """One that was to end does not serve on, whether its node goes on needing it or not."""
    before = life.engine.now() - ENDS_WITHIN
    asked = {
        one.resource_id
        for one in life.requests
        if one.verb in ("kill", "cancel") and one.at < before
    }
    for lease in leases:
        if lease.status == "ready" and lease.lease_id in asked:
            yield f"{lease.lease_id} was to end {ENDS_WITHIN} ago, and serves"


def _at_rest(life: Life) -> Iterable[str]:
    yield from _always(life)
    running = Counter(one.name for one in life.world.cloud_machines() if one.is_running)
    for name, count in running.items():
        if count > 1:
            yield f"{name} runs and costs {count} times"
    nodes = {node.node_id: node for node in life.rows.nodes()}
    for lease in life.rows.leases():
        holder = nodes.get(lease.holder_id.removeprefix("node/"))
        is_open = lease.status not in FINAL
        if is_open and lease.status != "ready":
            yield f"{lease.lease_id} is stuck: {lease.status}"
        if is_open and {"kill", "cancel"} & set(life.requests_of(lease.lease_id)):
            yield f"{lease.lease_id} was to end, and is {lease.status}"
        if is_open and holder is not None and holder.status == "archived":
            yield f"{lease.lease_id} is {lease.status}, and its holder has gone"
        if lease.status == "ready" and lease.name not in running:
            yield f"{lease.lease_id} is ready, and its machine does not run"
        if lease.status == "released" and lease.began_at and not lease.ended_at:
            yield f"{lease.lease_id} is released, and nobody knows until when it has cost"


_HELD_UP = calls_fail(LIFECYCLE, modes=("slow", "late", "lost", "killed_after"))
_KILLED = asks("lease", _leases, LIFECYCLE, "kill")
_TAKEN = goes_wrong("cloud-machine", _leases, LIFECYCLE, "preempted", "deadline")
_CLOUD_FAILS = goes_wrong("cloud", _leases, LIFECYCLE, "cloud_hangs", "cloud_refuses", "lists_lag")

LEASES = Part(
    name="leases",
    workflows=(LIFECYCLE,),
    drawers=(
        (7, calls_fail(LIFECYCLE)),
        (3, calls_keep_failing(LIFECYCLE)),
        (5, calls_fail(LIFECYCLE, modes=("canceled",))),
        (2, asks("lease", _leases, LIFECYCLE, "kill")),
        (2, together(_HELD_UP, _KILLED, _TAKEN, _CLOUD_FAILS)),
        (3, together(_TAKEN, _KILLED, _CLOUD_FAILS)),
        (
            6,
            goes_wrong(
                "cloud", _leases, LIFECYCLE, "cloud_hangs", "cloud_refuses", "cloud_forgets",
                "lists_lag", "makes_late", "makes_twice", "no_capacity", "feed_silent",
                "key_late", "boots_mute",
            ),
        ),
        (4, _TAKEN),
    ),
    always=_always,
    at_rest=_at_rest,
)  # fmt: skip
