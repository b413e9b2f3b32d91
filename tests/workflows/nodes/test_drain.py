"""A node that ends: its jobs leave it and begin again, and a planned end is not a loss."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from tests.workflows.jobs.test_job_lifecycle import Handle as JobHandle
from tests.workflows.jobs.test_job_lifecycle import at_running, job_id_of
from tests.workflows.jobs.test_races import Gate
from tests.workflows.jobs.test_restarts import waits_again
from tests.workflows.nodes.test_leased_machine import leased, preempted, quickly, statuses
from tests.workflows.nodes.test_node_lifecycle import Handle, reaches
from tests.workflows.regions.test_cloud_resources import REQUEST as REGION_REQUEST
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseEnding, LeaseRelease
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType, RegionStatus
from workflows.effects.regions import StorageNode
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.primitives.journal import RESOURCE_STATUS, STALE
from workflows.regions.region_lifecycle import RegionLifecycle

__all__ = ["quickly"]


async def with_a_job(stage: Stage, kind: NodeType) -> tuple[Handle, JobHandle]:
    """A leased node with a job on it that keeps its state."""
    handle = await leased(stage, kind)
    await reaches(stage, NodeStatus.ACTIVE)
    job = await stage.job(state_interval_s=3600, max_restarts=0)
    await at_running(stage, job)
    (run,) = stage.world.machines["nod-1"].runs.values()
    run.kept = 5
    return handle, job


async def ends_soon(stage: Stage) -> None:
    """The node's lease notifies the node of its deadline."""
    (lease_id,) = stage.world.leases
    reason = "the lease of its machine ends at 12:00"
    ending = LeaseEnding(lease_id=lease_id, reason=reason, ends_at=datetime.now(UTC))
    for _ in range(2):
        workflow_id = stage.world.holders["nod-1"]
        await stage.client.get_workflow_handle(workflow_id).signal("lease_ending", ending)


async def test_before_the_deadline_a_job_leaves_its_machine_with_its_state_and_never_runs_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.leases.deadline.ENDING_NOTICE", timedelta(seconds=7))
    world = stage.world
    world.lease_s = 15
    cloud_is_silent = Gate(stage, "terminate_machine")
    handle, job = await with_a_job(stage, NodeType.EPHEMERAL)
    job_id = job_id_of(job)
    await waits_again(stage, job, 2)
    assert world.live_runs() == [], "its first command is over before it begins again"
    assert world.states[job_id, 0].kept == 5
    assert f"{job_id}-0-1" in world.logs
    assert "job.rescheduled" in world.events[job_id]
    await cloud_is_silent.entered()
    assert world.cloud.lost == [], "a machine that is there is not lost"
    cloud_is_silent.open()
    report = await handle.result()
    assert str(report.status_reason).startswith("the lease of its machine ends at ")
    assert world.cloud.machines == {}


async def test_a_permanent_node_leaves_its_machine_before_the_deadline_and_gets_another(
    stage: Stage,
) -> None:
    _, job = await with_a_job(stage, NodeType.PERMANENT)
    await ends_soon(stage)
    await waits_again(stage, job, 2)
    await eventually(lambda: len(stage.world.leases) == 2, "another is leased")
    await reaches(stage, NodeStatus.ACTIVE)
    assert statuses(stage)[3:5] == ["active", "maintenance"]
    assert "node.machine-lost" not in stage.world.events["nod-1"]
    assert len(stage.world.cloud.machines) == 1


async def test_a_job_that_could_not_leave_in_time_begins_again_when_its_machine_has_ended(
    stage: Stage,
) -> None:
    world = stage.world
    cloud_is_silent = Gate(stage, "terminate_machine")
    handle, job = await with_a_job(stage, NodeType.EPHEMERAL)
    world.machines["nod-1"].reachable = False
    await ends_soon(stage)
    await eventually(lambda: "job.ending" in world.events[job_id_of(job)], "it is to leave")
    (lease_id,) = world.leases
    deadline = LeaseRelease(reason="the deadline has passed")
    await stage.client.get_workflow_handle(f"lease/{lease_id}").signal("release", deadline)
    await cloud_is_silent.entered()
    assert job_id_of(job) in world.held, "its command may still run"
    assert world.cloud.lost == [], "a machine that is there is not lost"
    cloud_is_silent.open()
    await waits_again(stage, job, 2)
    assert (await handle.result()).status == NodeStatus.ARCHIVED


@pytest.mark.parametrize("effect", ["end_worker", "release_lease"])
async def test_a_workflow_that_is_restored_in_a_planned_end_leaves_the_node_s_next_machine(
    stage: Stage, effect: str
) -> None:
    gate = Gate(stage, effect)
    handle, _ = await with_a_job(stage, NodeType.PERMANENT)
    await ends_soon(stage)
    await gate.entered()
    row = stage.world.rows["nod-1"]  # The node has gone on, with the machine that it has now.
    ahead = {"sequence": row.sequence + 7, "status": "active"}
    stage.world.rows["nod-1"] = row.model_copy(update=ahead)
    gate.open()

    (lease_id,) = stage.world.leases

    async def is_decided() -> bool:
        found = await handle.describe()
        is_stale = found.typed_search_attributes.get(RESOURCE_STATUS) == STALE
        return is_stale or stage.world.rows[lease_id].status != "ready"

    await eventually(is_decided, "the reconciliation can tell that its row is ahead")
    assert stage.world.rows[lease_id].status == "ready"
    assert len(stage.world.cloud.machines) == 1


@pytest.mark.parametrize("kind", list(NodeType))
async def test_a_preempted_job_that_hears_of_it_late_begins_again_and_does_not_fail(
    stage: Stage, kind: NodeType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.running_jobs.NOTIFY_AGAIN_INTERVAL", timedelta(seconds=1))

    async def refuse(_: Contract) -> None:
        raise ApplicationError("1 jobs not notified", type=errors.REFUSED)

    await leased(stage, kind)
    await reaches(stage, NodeStatus.ACTIVE)
    job = await stage.job()
    await at_running(stage, job)
    stage.world.faults["notify_jobs"] += [refuse, refuse]
    stage.world.machines["nod-1"].runs.clear()
    stage.world.machines["nod-1"].reachable = False
    await preempted(stage)
    await waits_again(stage, job, 2)
    assert "job.restarting" in stage.world.events[job_id_of(job)]


async def test_the_job_of_a_machine_that_has_ended_is_told_for_as_long_as_it_takes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("DRAIN_LIMIT", "NOTIFY_AGAIN_INTERVAL", "NOTIFY_AGAIN_LIMIT"):
        limited = f"workflows.nodes.running_jobs.{limit}"
        monkeypatch.setattr(limited, timedelta(milliseconds=20))

    async def refuse(_: Contract) -> None:
        raise ApplicationError("1 job not told", type=errors.REFUSED, non_retryable=True)

    handle = await leased(stage, NodeType.EPHEMERAL)
    await reaches(stage, NodeStatus.ACTIVE)
    job = await stage.job()
    await at_running(stage, job)
    stage.world.faults["notify_jobs"] += [refuse] * 10
    stage.world.machines["nod-1"].runs.clear()
    stage.world.machines["nod-1"].reachable = False
    await preempted(stage)
    await waits_again(stage, job, 2)
    assert stage.world.faults["notify_jobs"] == []
    assert (await handle.result()).status == NodeStatus.ARCHIVED


@pytest.mark.parametrize("reschedules", [True, False])
async def test_the_jobs_of_a_removed_region_begin_again_and_those_of_a_removed_node_fail(
    stage: Stage, reschedules: bool
) -> None:
    handle, job = await with_a_job(stage, NodeType.PERMANENT)
    removal = Removal(force=True, requested_by="ada", reschedules=reschedules)
    await handle.signal(NodeLifecycle.remove, removal)
    if reschedules:
        await waits_again(stage, job, 2)
        assert stage.world.states[job_id_of(job), 0].kept == 5
    else:
        assert (await job.result()).status == "failed"
    assert (await handle.result()).status == "archived"
    assert stage.world.live_runs() == []
    assert stage.world.cloud.machines == {}


async def test_a_storage_node_serves_until_its_region_has_another(stage: Stage) -> None:
    handle = await leased(stage, service="storage")
    await reaches(stage, NodeStatus.ACTIVE)
    this = StorageNode(node_id="nod-1", name="store", status=NodeStatus.ACTIVE)
    stage.world.storage[REGION] = [this]
    request = REGION_REQUEST.model_copy(update={"resumed_status": RegionStatus.HEALTHY})
    await stage.client.start_workflow(
        RegionLifecycle.run, request, id=f"region/{REGION}", task_queue=queues.MAIN
    )
    await ends_soon(stage)
    replaced = stage.world.events[REGION]
    await eventually(lambda: "region.storage-replaced" in replaced, "its region replaces it")
    assert [node.node_id for node in stage.world.storage[REGION]] == ["nod-store-1"]
    assert statuses(stage)[-1] == "active"
    await handle.signal(NodeLifecycle.remove, Removal(force=True, reschedules=True))
    assert (await handle.result()).status == "archived"
    assert stage.world.cloud.machines == {}
