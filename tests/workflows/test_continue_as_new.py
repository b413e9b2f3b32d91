"""Every loop of a lifecycle continues as new when its history is long, and keeps its progress."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.artifacts import test_artifact_lifecycle as datasets
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from tests.workflows.jobs.test_job_lifecycle import at_running, job_id_of
from tests.workflows.jobs.test_races import Gate
from tests.workflows.jobs.test_restarts import waits_again
from tests.workflows.leases.test_lease_lifecycle import LEASE, lease
from tests.workflows.nodes.test_drain import ends_soon
from tests.workflows.nodes.test_leased_machine import leased
from tests.workflows.providers.test_provider_lifecycle import HOME, PROVIDER
from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle

LONG = 40
"""Events, after which a history counts as long here."""
TRIES = 12
INTERVALS = (
    "workflows.leases.machine_end.TERMINATION_INTERVAL",
    "workflows.regions.region_lifecycle.REMOVAL_INTERVAL",
    "workflows.providers.provider_lifecycle.REMOVAL_INTERVAL",
    "workflows.nodes.leased_machine.RELEASE_POLL_MIN",
    "workflows.nodes.leased_machine.POLL_INTERVAL_MAX",
    "workflows.hosts.outage.REFUSED_KEY_INTERVAL",
    "workflows.hosts.outage.LAST_REFUSED_KEY_INTERVAL",
    "workflows.jobs.job_lifecycle.WAIT_INTERVAL",
    "workflows.artifacts.artifact_lifecycle.REMOVAL_INTERVAL",
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "workflows.primitives.journal.is_long",
        lambda: workflow.info().get_current_history_length() > LONG,
    )
    for interval in INTERVALS:
        monkeypatch.setattr(interval, timedelta(milliseconds=10))


async def refuse(_: Contract) -> None:
    raise ApplicationError("not now", type=errors.REFUSED)


async def continued(stage: Stage, handle: WorkflowHandle[Any, Any], times: int = 1) -> None:
    """It has continued as new so often since it was started."""

    async def often() -> bool:
        found = stage.client.list_workflows(f"WorkflowId = '{handle.id}'")
        return len([run.run_id async for run in found]) > times

    await eventually(often, f"{handle.id} continues as new")


class Stubborn(set[str]):
    """What is asked to leave in vain for long."""

    asked = 0

    def clear(self) -> None:
        self.asked += 1
        if self.asked > TRIES:
            super().clear()


async def test_a_lease_whose_machine_cannot_be_terminated(stage: Stage) -> None:
    handle = await lease(stage)
    await eventually(lambda: stage.world.statuses[LEASE][-1:] == ["ready"], "it is ready")
    stage.world.faults["terminate_machine"] += [refuse] * 40
    asked = LeaseRelease(reason="its job has ended", by_person=True)
    await handle.signal(LeaseLifecycle.release, asked)
    await continued(stage, handle)
    assert (await handle.result()).status == "released"
    assert stage.world.rows[LEASE].status_reason == asked.reason
    assert stage.world.cloud.machines == {}
    assert [lost.by_person for lost in stage.world.cloud.lost] == [True] * len(
        stage.world.cloud.lost
    )


async def test_a_region_whose_nodes_take_long_to_leave(stage: Stage) -> None:
    stage.world.dependents[REGION] = Stubborn({"nod-1"})
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, HOME, id=f"region/{REGION}", task_queue=queues.MAIN
    )
    await handle.signal(RegionLifecycle.remove, Removal(force=True))
    await continued(stage, handle)
    assert (await handle.result()).status == "archived"
    assert stage.world.events[REGION].count("region.removing") == 1


async def test_a_provider_whose_regions_take_long_to_leave(stage: Stage) -> None:
    stage.world.dependents["prv-1"] = Stubborn({REGION})
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, PROVIDER, id="provider/prv-1", task_queue=queues.MAIN
    )
    await handle.signal(ProviderLifecycle.remove, Removal(force=True))
    await continued(stage, handle)
    assert (await handle.result()).status == "archived"
    assert stage.world.events["prv-1"].count("provider.removing") == 1


async def test_a_dataset_whose_content_cannot_be_removed_for_long(stage: Stage) -> None:
    stage.world.faults["remove_content"] = [refuse] * TRIES
    handle = await datasets.start(stage)
    await datasets.reaches(stage, "ready")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert stage.world.contents == {}
    await continued(stage, handle)


async def test_a_node_that_fails_again_and_again(stage: Stage) -> None:
    stage.world.machines["nod-1"].minion_id = "SHA256:another"
    handle = await stage.node()
    failed = stage.world.events["nod-1"].count
    for number in range(TRIES):
        await eventually(lambda: failed("node.failed") > number, f"it fails {number}")  # noqa: B023
        await handle.signal(NodeLifecycle.wake)
    await continued(stage, handle)
    await eventually(lambda: failed("node.failed") > TRIES, "the try of the last wake has failed")
    stage.world.machines["nod-1"].minion_id = "SHA256:key"
    await handle.signal(NodeLifecycle.wake)
    await eventually(lambda: stage.world.statuses["nod-1"][-1] == "maintenance", "it is mended")
    assert set(stage.world.statuses["nod-1"][-3:]) <= {
        "connecting",
        "inspecting",
        "preparing",
        "maintenance",
    }


async def test_a_node_that_shows_another_key_for_long(stage: Stage) -> None:
    handle = await stage.node()
    await eventually(lambda: stage.world.statuses["nod-1"][-1:] == ["maintenance"], "it is there")
    stage.world.want("nod-1", "active")
    await handle.signal(NodeLifecycle.wake)
    await eventually(lambda: stage.world.statuses["nod-1"][-1] == "active", "it is active")
    stage.world.machines["nod-1"].minion_id = "SHA256:another"
    stage.world.machines["nod-1"].changed.set()
    await continued(stage, handle)
    stage.world.machines["nod-1"].minion_id = "SHA256:key"
    await eventually(lambda: stage.world.statuses["nod-1"][-1] == "active", "it is back")
    assert "failed" not in stage.world.statuses["nod-1"], "its jobs may run on it all the time"


async def test_a_node_whose_machine_takes_long_to_be_terminated(stage: Stage) -> None:
    handle = await leased(stage)
    await eventually(lambda: stage.world.statuses["nod-1"][-1:] == ["active"], "it is active")
    stage.world.faults["terminate_machine"] += [refuse] * 40
    await handle.signal(NodeLifecycle.remove, Removal())
    await continued(stage, handle)
    assert (await handle.result()).status == "archived"
    assert stage.world.cloud.machines == {}
    assert stage.world.events["nod-1"].count("node.removing") == 1


@pytest.mark.parametrize("kind", list(NodeType))
async def test_a_job_that_does_not_leave_begins_again_only_when_its_machine_is_gone(
    stage: Stage, kind: NodeType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("DRAIN_LIMIT", "DRAIN_INTERVAL", "NOTIFY_AGAIN_INTERVAL"):
        limited = f"workflows.nodes.running_jobs.{limit}"
        monkeypatch.setattr(limited, timedelta(milliseconds=300))
    handle = await leased(stage, kind)
    await eventually(lambda: stage.world.statuses["nod-1"][-1:] == ["active"], "it is active")
    job = await stage.job()
    await at_running(stage, job)
    (run,) = stage.world.machines["nod-1"].runs.values()
    run.is_stuck = True
    cloud_is_silent = Gate(stage, "terminate_machine")
    if kind is NodeType.PERMANENT:
        await ends_soon(stage)
    else:
        await handle.signal(NodeLifecycle.remove, Removal(force=True, reschedules=True))
    await cloud_is_silent.entered()
    await continued(stage, handle, times=4)
    assert job_id_of(job) in stage.world.held, "its command runs on a machine that is there"
    cloud_is_silent.open()
    await waits_again(stage, job, 2)
    assert not [key for key in stage.world.cloud.machines if stage.world.cloud.made[key] > 1]
    if kind is NodeType.PERMANENT:
        await eventually(lambda: stage.world.statuses["nod-1"][-1:] == ["active"], "has another")
        assert "node.machine-lost" not in stage.world.events["nod-1"]


async def test_a_job_that_waits_for_long(stage: Stage) -> None:
    handle = await stage.job()
    await continued(stage, handle)
    await handle.signal(JobLifecycle.cancel, EndRequest(reason="not wanted any more"))
    assert (await handle.result()).status == "canceled"
