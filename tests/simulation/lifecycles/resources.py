"""Nodes, regions and providers."""

from collections.abc import Iterable

from tests.simulation.contracts import NotFound, ResourceView
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import (
    Part,
    asks,
    calls_fail,
    calls_keep_failing,
    goes_wrong,
    together,
)
from tests.simulation.plan import At, Draft, In

NODE, REGION, PROVIDER = "NodeLifecycle", "RegionLifecycle", "ProviderLifecycle"
AT_REST = ("maintenance", "active", "failed", "archived", "ready", "healthy")
SERVES = ("active", "maintenance")
GIVEN_UP = ("offline", "failed")
REMOVALS = {"remove", "force_remove"}


def _machines(draft: Draft) -> int:
    return draft.machines


def _clouds(draft: Draft) -> int:
    return 1 if draft.has_cloud else 0


def _at_rest(life: Life) -> Iterable[str]:
    wanted = {"activate": "active", "maintain": "maintenance"}
    for node in life.rows.nodes():
        yield from settled(life, "node", node.node_id, node.status, node.status_reason)
        request = wanted.get(next(iter(life.requests_of(node.node_id)[-1:]), ""))
        if request and node.status not in (request, "archived") and not node.status_reason:
            yield f"{node.node_id} was to be {request}, is {node.status}, and does not say why"
        if (
            _was_removed(life, node.node_id)
            and node.status != "archived"
            and not node.status_reason
        ):
            yield f"{node.node_id} was removed, is {node.status}, and does not say why"
    for region in life.rows.regions():
        yield from settled(life, "region", region.resource_id, region.status, region.status_reason)
        yield from _removed_as_asked(life, region)
    for provider in life.rows.providers():
        yield from settled(
            life, "provider", provider.resource_id, provider.status, provider.status_reason
        )
        yield from _removed_as_asked(life, provider)
    yield from _allocations_are_free(life)
    yield from _orphans_are_ended(life)
    yield from _none_is_rented_in_vain(life)


def _none_is_rented_in_vain(life: Life) -> Iterable[str]:
    """A machine that was rented for a job is given back when no job has it."""
    used = {one.node_id for one in life.rows.allocations()}
    for node in life.rows.nodes():
        if node.ephemeral and node.status == "active" and node.node_id not in used:
            yield f"{node.node_id} was rented for a job, and is kept without one"


def _was_removed(life: Life, resource_id: str) -> bool:
    return life.requests_of(resource_id)[-1:] in (
        ["remove"],
        ["force_remove"],
        ["reschedule_remove"],
    )


def _removed_as_asked(life: Life, resource: ResourceView) -> Iterable[str]:
    """A region or a provider that was to be removed is, or an event says why it stays."""
    was_removed = REMOVALS & set(life.requests_of(resource.resource_id))
    if was_removed and resource.status != "archived" and not resource.refused_removals:
        yield f"{resource.resource_id} was removed, is {resource.status}, and nothing says why"


def settled(
    life: Life, noun: str, resource_id: str, status: str, reason: str | None
) -> Iterable[str]:
    """Its status is one to stay in, or says why not; its workflow runs until it is archived."""
    if status not in AT_REST and not (status in GIVEN_UP and reason):
        yield f"{resource_id} is stuck: {status} ({reason})"
    try:
        run = life.engine.describe(f"{noun}/{resource_id}")
    except NotFound:
        if status != "archived":
            yield f"{resource_id} is {status}, and has no workflow"
        return
    if (status != "archived") != (run.status == "running"):
        yield f"{resource_id} is {status}, and its workflow is {run.status}"


def _orphans_are_ended(life: Life) -> Iterable[str]:
    """On the machine of a node that serves nothing runs but what is allocated there."""
    held = {one.run_id for one in life.rows.allocations()}
    serving = {node.minion_id for node in life.rows.nodes() if node.status in SERVES}
    for one in life.world.processes():
        if one.state == "running" and one.machine in serving and one.run_id not in held:
            yield f"{one.run_id} runs on a machine that serves, and nobody claims it"


def _allocations_are_free(life: Life) -> Iterable[str]:
    """What is allocated belongs to an open job, or to a node that waits for a run to end."""
    jobs = life.views()
    for one in life.rows.allocations():
        job = jobs.get(one.job_id or "")
        if job is not None and not job.is_open:
            yield f"{one.allocation_id} is held for {job.job_id}, which is {job.status}"


_REMOVED = asks("node", _machines, NODE, "remove", "force_remove", "reschedule_remove")
_ACTS = asks("node", _machines, NODE, "maintain", "activate", "refresh", "reboot")
_AWAY = goes_wrong(
    "machine", _machines, NODE, "machine_unreachable", "machine_reboots", "supervisor_killed"
)


def _given_up_and_added_again(draft: Draft) -> None:
    """A machine that nobody reaches is removed by force, rather while a job runs there; it comes
    back, and is added again."""
    random, number = draft.random, draft.random.randrange(max(1, draft.machines))
    lasts_s = random.choice((240.0, 600.0, 1200.0))
    away: At | In = At(draft.some_time() * 0.4)
    if is_here := random.random() < 0.7:
        job = draft.a("job", draft.jobs)
        away = In("JobLifecycle", "running", 1, random.choice((2.0, 60.0)), job)
    removed = away.and_then(lasts_s * random.uniform(0.3, 0.9))
    added = removed.and_then(random.choice((30.0, 300.0, 900.0)))
    draft.add(away, "world", "machine_unreachable", f"machine/{number}", lasts_s, is_here=is_here)
    draft.add(removed, "ask", "force_remove", f"node/{number}", is_here=is_here)
    draft.add(added, "ask", "add", "left-machine/0")


NODES = Part(
    name="nodes",
    workflows=(NODE,),
    drawers=(
        (5, calls_fail(NODE)),
        (3, calls_keep_failing(NODE)),
        (4, asks("node", _machines, NODE, "maintain", "activate", "activate")),
        (4, _given_up_and_added_again),
        (2, together(_REMOVED, _AWAY, _ACTS)),
        (2, together(_AWAY, _REMOVED, _ACTS)),
        (2, asks("node", _machines, NODE, "remove", "force_remove", "reschedule_remove")),
        (1, asks("node", _machines, NODE, "refresh", "reboot")),
        (
            7,
            goes_wrong(
                "machine", _machines, NODE, "machine_unreachable", "machine_reboots",
                "machine_moves", "clock_jumps", "supervisor_killed", "disk_full", "machine_lies",
                "machine_suspends",
            ),
        ),
        (2, goes_wrong("machine", _machines, NODE, "machine_lost", "machine_wiped")),
    ),
    at_rest=_at_rest,
)  # fmt: skip
REGIONS = Part(
    name="regions",
    workflows=(REGION,),
    drawers=(
        (2, calls_fail(REGION)),
        (1, calls_keep_failing(REGION)),
        (1, asks("region", lambda _: 3, REGION, "remove", "force_remove", "refresh")),
        (1, asks("storage", _clouds, REGION, "replace")),
        (1, goes_wrong("region", lambda _: 2, REGION, "site_away")),
    ),
)
PROVIDERS = Part(
    name="providers",
    workflows=(PROVIDER, "ProviderNotifications", "PriceRefresh", "OfferRefresh"),
    drawers=(
        (2, calls_fail(PROVIDER, "ProviderNotifications", "PriceRefresh")),
        (1, calls_keep_failing(PROVIDER, "ProviderNotifications", "PriceRefresh")),
        (1, asks("provider", lambda _: 2, PROVIDER, "remove", "force_remove", "recheck")),
        (1, goes_wrong("cloud", lambda _: 1, PROVIDER, "key_revoked")),
    ),
)
