"""Temporal forgets everything: nodes, leases, regions and providers go on from their rows."""

import asyncio

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.fake_world import REGION, Run
from tests.workflows.installation import (
    JOB,
    LEASE,
    NODE,
    PROVIDER,
    Installation,
    Step,
    installation,
    nothing,
)
from tests.workflows.jobs.test_races import Gate
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.providers import Check
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import RunState

__all__ = ["installation"]
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


# ── nodes ───────────────────────────────────────────────────────────────────────────────────


async def connects(at: Installation) -> None:
    at.world.machines[NODE].reachable = False
    await at.reaches(NODE, "connecting")
    await eventually(lambda: "node.not-reached" in at.world.events[NODE], "it was tried")


def held_node(effect: str, status: str) -> Step:
    async def comes(at: Installation) -> None:
        gate = Gate(at.stage, effect)
        await at.reaches(NODE, status)
        await gate.entered()
        asyncio.get_running_loop().call_later(0.5, gate.open)

    return comes


async def is_maintained(at: Installation) -> None:
    await at.reaches(NODE, "maintenance")


async def is_active(at: Installation) -> None:
    await is_maintained(at)
    await at.want("active")
    await at.reaches(NODE, "active")


async def is_offline(at: Installation) -> None:
    await is_active(at)
    at.world.machines[NODE].reachable = False
    at.world.machines[NODE].changed.set()
    await at.reaches(NODE, "offline")


async def has_failed(at: Installation) -> None:
    at.world.machines[NODE].minion_id = "SHA256:another"
    await at.reaches(NODE, "failed")


async def is_being_removed(at: Installation) -> None:
    await is_active(at)
    gate = Gate(at.stage, "restore_logins")
    await at.tell(NODE, "remove", Removal(force=True, requested_by="key-1"))
    await gate.entered()
    asyncio.get_running_loop().call_later(0.5, gate.open)


NODES = {
    "connecting": (connects, "maintenance"),
    "inspecting": (held_node("inspect_node", "inspecting"), "maintenance"),
    "preparing": (held_node("prepare_node", "preparing"), "maintenance"),
    "maintenance": (is_maintained, "maintenance"),
    "active": (is_active, "active"),
    "offline": (is_offline, "active"),
    "failed": (has_failed, "failed"),
    "removing": (is_being_removed, "archived"),
}


@pytest.mark.parametrize("status", NODES)
async def test_a_node_whose_workflow_is_forgotten_comes_back_to_the_status_of_its_row(
    installation: Installation, status: str
) -> None:
    comes, then = NODES[status]
    at = installation
    await at.start(NODE)
    await comes(at)
    assert at.status(NODE) == status
    at.world.place("job-live")
    at.world.machines[NODE].runs["job-live-0-1"] = Run(RunState.RUNNING, 1)
    await at.forget()
    if status == "removing":
        del at.world.held["job-live"]
    seen = len(at.world.statuses[NODE])
    at.world.machines[NODE].reachable = True
    handle = await at.start(NODE)
    await at.reaches(NODE, then)
    if then == "archived":
        await handle.result()
        assert at.world.machines[NODE].is_released
        return
    assert "archived" not in at.world.statuses[NODE][seen:]
    assert at.world.live_runs() == ["job-live-0-1"]
    await at.want("maintenance" if then == "active" else "active")
    if then != "failed":
        await at.reaches(NODE, "maintenance" if then == "active" else "active")
    del at.world.held["job-live"]
    await at.tell(NODE, "remove", Removal())
    await handle.result()


async def test_a_node_whose_workflow_is_forgotten_after_a_violation_goes_on_taking_its_jobs_off(
    installation: Installation,
) -> None:
    """And an announcement does not make it active, although a person had wanted it so before."""
    at = installation
    await at.start(NODE)
    await is_active(at)
    await at.start(JOB)
    await at.run_to("running")
    gate = at.held["notify_jobs"] = Gate(at.stage, "notify_jobs")
    at.world.machines[NODE].violation = "says what the agent never says"
    at.world.machines[NODE].changed.set()
    await gate.entered()
    await at.stage.client.get_workflow_handle(f"node/{NODE}").terminate("Temporal forgets it")
    await at.start(NODE)
    await eventually(lambda: JOB not in at.world.held, "the job has left the node")
    await at.let_go()
    at.world.machines[NODE].violation = ""
    await at.tell(NODE, "wake")
    await at.reaches(NODE, "maintenance")
    await eventually(lambda: at.world.live_runs() == [], "what nobody believes is ended")
    assert at.status(NODE) == "maintenance"


async def test_a_job_leaves_a_node_whose_removal_is_forgotten_and_begins_again_elsewhere(
    installation: Installation,
) -> None:
    at = installation
    await at.start(NODE)
    await is_active(at)
    await at.start(JOB)
    await at.run_to("running")
    gate = at.held["notify_jobs"] = Gate(at.stage, "notify_jobs")
    await at.tell(NODE, "remove", Removal(force=True, reschedules=True))
    await gate.entered()
    await at.stage.client.get_workflow_handle(f"node/{NODE}").terminate("Temporal forgets it")
    handle = await at.start(NODE)
    await eventually(lambda: JOB not in at.world.held, "the job has left the node")
    await at.let_go()
    await handle.result()
    assert at.status(JOB) == "waiting_for_resources"


# ── leases ──────────────────────────────────────────────────────────────────────────────────


def held_lease(effect: str, status: str) -> Step:
    async def comes(at: Installation) -> None:
        gate = Gate(at.stage, effect)
        if status == "releasing":
            await at.reaches(LEASE, "ready")
            await at.tell(LEASE, "release", LeaseRelease(reason="its job has ended"))
        await at.reaches(LEASE, status)
        await gate.entered()
        at.held[effect] = gate

    return comes


async def is_ready(at: Installation) -> None:
    await at.reaches(LEASE, "ready")


async def machine_ends_unseen(at: Installation) -> None:
    at.world.cloud.end(f"baseload-{LEASE}")


LEASES = {
    "creating": (held_lease("create_machine", "creating"), nothing, "ready"),
    "waiting_for_ssh": (held_lease("reach_node", "waiting_for_ssh"), nothing, "ready"),
    "ready": (is_ready, nothing, "ready"),
    "ready, ended unseen": (is_ready, machine_ends_unseen, "released"),
    "releasing": (held_lease("terminate_machine", "releasing"), nothing, "released"),
}


@pytest.mark.parametrize("case", LEASES)
async def test_a_lease_whose_workflow_is_forgotten_has_one_machine_and_leaves_none(
    installation: Installation, case: str
) -> None:
    comes, unseen, then = LEASES[case]
    at = installation
    await at.start(LEASE)
    await comes(at)
    await at.forget()
    await unseen(at)
    handle = await at.start(LEASE)
    await at.reaches(LEASE, then)
    await at.let_go()  # What the lost workflow has begun ends late, and makes no second machine.
    assert sum(at.world.cloud.made.values()) == 1
    if then == "ready":
        assert list(at.world.cloud.machines) == [(f"baseload-{LEASE}", "zone-a")]
        await at.tell(LEASE, "release", LeaseRelease(reason="its job has ended"))
    await handle.result()
    assert at.world.cloud.machines == {}
    assert at.status(LEASE) == "released"


# ── regions and providers ───────────────────────────────────────────────────────────────────


async def no_worker(at: Installation) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("nobody serves it", type=errors.REFUSED)

    at.world.faults["check_site"].append(refuse)


def is_region(status: str) -> Step:
    async def comes(at: Installation) -> None:
        if status == "offline":
            await no_worker(at)
        gate = Gate(at.stage, "check_site") if status == "provisioning" else None
        await at.start(REGION)
        await at.reaches(REGION, status if status != "removing" else "healthy")
        if status == "removing":
            gate = Gate(at.stage, "remove_dependents")
            at.world.dependents[REGION].add(NODE)
            await at.tell(REGION, "remove", Removal(force=True, requested_by="key-1"))
        if gate is not None:
            await gate.entered()
            asyncio.get_running_loop().call_later(0.5, gate.open)

    return comes


def is_provider(status: str) -> Step:
    async def comes(at: Installation) -> None:
        if status == "failed":
            at.world.checks = (Check(name="platform-key", status="failed", detail="make one"),)
        gate = Gate(at.stage, "check_provider") if status == "enabling" else None
        await at.start(PROVIDER)
        await at.reaches(PROVIDER, status if status != "removing" else "ready")
        if status == "removing":
            gate = Gate(at.stage, "remove_dependents")
            at.world.dependents[PROVIDER].add(REGION)
            await at.tell(PROVIDER, "remove", Removal(force=True, requested_by="key-1"))
        if gate is not None:
            await gate.entered()
            asyncio.get_running_loop().call_later(0.5, gate.open)

    return comes


PLACES = {
    (REGION, "provisioning"): (is_region("provisioning"), "healthy"),
    (REGION, "healthy"): (is_region("healthy"), "healthy"),
    (REGION, "offline"): (is_region("offline"), "healthy"),
    (REGION, "removing"): (is_region("removing"), "archived"),
    (PROVIDER, "enabling"): (is_provider("enabling"), "ready"),
    (PROVIDER, "ready"): (is_provider("ready"), "ready"),
    (PROVIDER, "failed"): (is_provider("failed"), "failed"),
    (PROVIDER, "removing"): (is_provider("removing"), "archived"),
}


@pytest.mark.parametrize(("resource_id", "status"), PLACES)
async def test_regions_and_providers_whose_workflow_is_forgotten_come_back_as_they_were(
    installation: Installation, resource_id: str, status: str
) -> None:
    comes, then = PLACES[resource_id, status]
    at = installation
    await comes(at)
    assert at.status(resource_id) == status
    reason = at.world.rows[resource_id].status_reason
    await at.forget()
    handle = await at.start(resource_id)
    if resource_id == REGION and then == "healthy":
        await at.tell(resource_id, "refresh")
    await at.reaches(resource_id, then)
    if then == "archived":
        await handle.result()
        with at.database.read() as session:
            row = at.row(session, resource_id)
            assert (row.removal_force, row.removal_requested_by) == (True, "key-1")
        return
    shown = await handle.query("status")
    assert (shown["status"], shown["status_reason"]) == (then, reason if then == status else None)
    await at.tell(resource_id, "remove", Removal())
    await handle.result()
