"""Record the histories that every later version of the workflows must replay.

`python -m tests.replay.record RELEASE` writes `histories/RELEASE/NAME.json`, one for each of
`STORIES`, played against the tests' world. Recorded ones are never changed: a new release adds its
own. What is there already stays, so that a release which is not published gets those it lacks.
"""

import asyncio
import re
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.replay import federated, loops
from tests.temporal_server import TemporalServer
from tests.waiting import eventually
from tests.workflows.artifacts import test_artifact_lifecycle as artifacts
from tests.workflows.artifacts import test_regional_transfer as regional_transfers
from tests.workflows.conftest import Stage, served
from tests.workflows.datastores import test_datastore_lifecycle as datastores
from tests.workflows.devices import staged as devices
from tests.workflows.fake_world import Machine
from tests.workflows.jobs import test_job_lifecycle as jobs
from tests.workflows.jobs.test_races import Gate
from tests.workflows.leases import test_lease_lifecycle as machines
from tests.workflows.nodes import test_leased_machine as leased_nodes
from tests.workflows.nodes import test_node_lifecycle as nodes
from tests.workflows.providers.test_provider_lifecycle import CLOUD, HOME, PROVIDER, reaches
from tests.workflows.regions.test_cloud_resources import REQUEST as CLOUD_REGION
from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts import queues
from workflows.contracts.artifacts import RetryTransfer
from workflows.contracts.deployments import DeploymentAction
from workflows.contracts.jobs import EndRequest, NodeReachable
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.regions import Replacement
from workflows.contracts.removals import Removal
from workflows.contracts.schedules import ReconciliationRequest
from workflows.contracts.statuses import JobStatus, JobType, NodeStatus
from workflows.datastores.datastore_lifecycle import DatastoreLifecycle
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle
from workflows.effects.regions import StorageNode
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.placement.loop import PlacementLoop
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.reconciliation.reconcilers import OutboxRelay
from workflows.regions.region_lifecycle import RegionLifecycle

HISTORIES = Path(__file__).parent / "histories"
Story = Callable[[Stage], Awaitable[WorkflowHandle[Any, Any]]]


async def job_finished(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.job()
    await jobs.at_running(stage, handle)
    await jobs.exits(stage, handle, 0, code=0, elapsed_s=12)
    await handle.result()
    return handle


async def job_canceled(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.job()
    await jobs.at_running(stage, handle)
    await handle.signal(JobLifecycle.cancel, jobs.CANCEL)
    await handle.result()
    return handle


async def job_lost_and_back(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.job()
    await jobs.at_unreachable(stage, handle)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await jobs.exits(stage, handle, 0, code=1, elapsed_s=12)
    await handle.result()
    return handle


async def job_that_awaits_data_and_delivers(stage: Stage) -> WorkflowHandle[Any, Any]:
    job_id = f"job-{uuid.uuid4().hex[:12]}"
    stage.world.awaited[job_id] = "its input is being transferred"
    handle = await stage.job(job_id=job_id, awaits_data=True, delivers_output=True)
    await eventually(lambda: "job.awaits-data" in stage.world.events[job_id], "it awaits its data")
    del stage.world.awaited[job_id]
    await handle.signal(JobLifecycle.data_changed)
    await jobs.at_running(stage, handle)
    await jobs.exits(stage, handle, 0, code=0, elapsed_s=12)
    await handle.result()
    return handle


async def notebook_stopped_and_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.job(JobType.NOTEBOOK, keeps_output=False)
    await jobs.at_running(stage, handle)
    await handle.signal(JobLifecycle.stop, EndRequest(reason="for the night"))
    await jobs.reaches(stage, handle, JobStatus.STOPPED)
    await handle.signal(JobLifecycle.remove)
    await handle.result()
    return handle


async def node_lost_and_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await nodes.onboarded(stage)
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await nodes.reaches(stage, "offline")
    machine.reachable = True
    await nodes.reaches(stage, "active")
    await handle.signal(NodeLifecycle.remove, Removal())
    await handle.result()
    return handle


async def provider_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, PROVIDER, id="provider/recorded", task_queue=queues.MAIN
    )
    await reaches(stage, "prv-1", "ready")
    await handle.signal(ProviderLifecycle.remove, Removal())
    await handle.result()
    return handle


async def cloud_provider_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, CLOUD, id="provider/recorded-cloud", task_queue=queues.MAIN
    )
    await reaches(stage, CLOUD.provider_id, "ready")
    await handle.signal(ProviderLifecycle.refresh)
    await handle.signal(ProviderLifecycle.remove, Removal())
    await handle.result()
    return handle


async def region_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, HOME, id="region/recorded", task_queue=queues.MAIN
    )
    await reaches(stage, HOME.region_id, "healthy")
    await handle.signal(RegionLifecycle.remove, Removal())
    await handle.result()
    return handle


async def cloud_region_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, CLOUD_REGION, id="region/recorded-cloud", task_queue=queues.MAIN
    )
    await reaches(stage, CLOUD_REGION.region_id, "healthy")
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(
        lambda: "region.storage-replaced" in stage.world.events[CLOUD_REGION.region_id],
        "its storage is replaced",
    )
    await handle.signal(RegionLifecycle.remove, Removal())
    await handle.result()
    return handle


async def datastore_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await datastores.begin(stage)
    await datastores.reaches(stage, "ready")
    stage.world.shares[datastores.LAB] = datastores.AWAY
    await handle.signal(DatastoreLifecycle.refresh)
    await datastores.reaches(stage, "offline")
    await handle.signal(DatastoreLifecycle.remove, Removal())
    await handle.result()
    return handle


async def leased_node_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await leased_nodes.leased(stage)
    await nodes.reaches(stage, "active")
    await leased_nodes.preempted(stage)
    await eventually(lambda: len(stage.world.leases) == 2, "it has another machine", 120)
    await nodes.reaches(stage, "active")
    await handle.signal(NodeLifecycle.remove, Removal())
    await handle.result()
    return handle


async def lease_released(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.cloud.short.add("zone-a")
    offers = (machines.offer("zone-a"), machines.offer("zone-b"))
    handle = await machines.lease(stage, *offers)
    await machines.released(stage, handle)
    return handle


async def placement_round(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        PlacementLoop.run, PlacementRequest(), id="placement", task_queue=queues.MAIN
    )
    job = await stage.job()
    await jobs.reaches(stage, job, JobStatus.WAITING_FOR_RESOURCES)
    await handle.signal(PlacementLoop.wake)
    await jobs.reaches(stage, job, JobStatus.RUNNING)
    return handle


async def outbox_round(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await stage.client.start_workflow(
        OutboxRelay.run, ReconciliationRequest(), id="outbox", task_queue=queues.MAIN
    )
    await nodes.onboarded(stage)
    return handle


async def dataset_retried_and_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.faults["transfer_artifact"] = [artifacts.refuse]
    handle = await artifacts.start(stage)
    await artifacts.reaches(stage, "failed")
    await handle.signal(ArtifactLifecycle.retry, RetryTransfer())
    await artifacts.reaches(stage, "ready")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
    return handle


async def dataset_kept_while_it_is_transferred(stage: Stage) -> WorkflowHandle[Any, Any]:
    gate = Gate(stage, "transfer_artifact")
    handle = await artifacts.start(stage)
    await gate.entered()
    stage.world.dependents[artifacts.DATASET].add("job-1")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await eventually(
        lambda: "dataset.removal-refused" in stage.world.events[artifacts.DATASET], "it is refused"
    )
    gate.open()
    await artifacts.reaches(stage, "ready")
    stage.world.dependents[artifacts.DATASET].clear()
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
    return handle


async def central_storage_replaced(stage: Stage) -> WorkflowHandle[Any, Any]:
    """Its new storage node is there when it is asked for, and becomes active later."""
    request = HOME.model_copy(update={"central_storage": True})
    region_id = request.region_id
    old = StorageNode(node_id="nod-old", name="old", status=NodeStatus.ACTIVE)
    new = StorageNode(node_id="nod-new", name="new", status=NodeStatus.CONNECTING)
    stage.world.storage[region_id] = [old]
    stage.world.cached["nod-old"] |= {"code/a", "parts/b"}
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, request, id="region/recorded-central", task_queue=queues.MAIN
    )
    await reaches(stage, region_id, "healthy")
    stage.world.fills_from["nod-new"] = "nod-old"
    stage.world.storage[region_id] = [old, new]
    await handle.signal(RegionLifecycle.replace, Replacement())
    active = new.model_copy(update={"status": NodeStatus.ACTIVE})
    stage.world.storage[region_id] = [old, active]
    await handle.signal(RegionLifecycle.refresh)
    await eventually(
        lambda: "region.storage-replaced" in stage.world.events[region_id],
        "its storage is replaced",
    )
    await handle.signal(RegionLifecycle.remove, Removal())
    await handle.result()
    return handle


async def datastore_kept_by_a_job_and_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.dependents[datastores.LAB].add("job-1")
    handle = await datastores.begin(stage)
    await datastores.reaches(stage, "ready")
    await handle.signal(DatastoreLifecycle.remove, Removal())
    await eventually(
        lambda: "datastore.removal-refused" in stage.world.events[datastores.LAB], "it is refused"
    )
    stage.world.dependents[datastores.LAB].clear()
    await handle.signal(DatastoreLifecycle.remove, Removal())
    await handle.result()
    return handle


async def dataset_from_a_datastore_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.machines["nod-0"] = Machine(reachable=False)
    handle = await artifacts.start(stage, regional_transfers.REGIONAL)
    await artifacts.reaches(stage, "ready")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
    return handle


async def device_that_is_deployed_to_and_rolled_back(stage: Stage) -> WorkflowHandle[Any, Any]:
    """Its second revision fails, it is asked for the first one again, is lost, and is removed."""
    handle = await devices.onboarded(stage)
    await devices.deployed(stage, handle, 7)
    stage.world.on_devices[devices.DEVICE].bad.add(2)
    await devices.deployed(stage, handle, 8, failed="its health check failed")
    await devices.deployed(stage, handle, 7)
    machine = stage.world.machines[devices.DEVICE]
    machine.reachable = False
    machine.changed.set()
    await devices.reaches(stage, devices.DEVICE, "offline")
    machine.reachable = True
    await devices.reaches(stage, devices.DEVICE, "active")
    await devices.deployed(stage, handle, None)
    await handle.signal(DeviceLifecycle.remove, Removal())
    await handle.result()
    return handle


async def deployment_in_steps(stage: Stage) -> WorkflowHandle[Any, Any]:
    """One device after the other, of which the last is away until a person goes back."""
    handle = await devices.rollout(stage, away={"dev-3"})
    await handle.signal(DeploymentLifecycle.wake)
    await devices.runs(stage, "dev-2", handle)
    await handle.signal(DeploymentLifecycle.order, devices.order(DeploymentAction.PAUSE))
    await devices.reaches(stage, devices.DEPLOYMENT, "paused")
    await handle.signal(DeploymentLifecycle.order, devices.order(DeploymentAction.RESUME))
    await devices.reaches(stage, devices.DEPLOYMENT, "rolling_out")
    await handle.signal(DeploymentLifecycle.order, devices.order(DeploymentAction.ROLL_BACK))
    await handle.result()
    return handle


STORIES: tuple[Story, ...] = (
    job_finished,
    job_canceled,
    job_lost_and_back,
    job_that_awaits_data_and_delivers,
    notebook_stopped_and_removed,
    node_lost_and_removed,
    provider_removed,
    cloud_provider_removed,
    region_removed,
    cloud_region_removed,
    central_storage_replaced,
    datastore_removed,
    leased_node_removed,
    lease_released,
    placement_round,
    outbox_round,
    dataset_retried_and_removed,
    dataset_kept_while_it_is_transferred,
    datastore_kept_by_a_job_and_removed,
    dataset_from_a_datastore_removed,
    device_that_is_deployed_to_and_rolled_back,
    deployment_in_steps,
    *federated.STORIES,
    *loops.STORIES,
)


async def record(release: str) -> None:
    """Play every story that the release has no history of, and keep its history."""
    folder = HISTORIES / release
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        server = TemporalServer(Path(scratch))
        server.start()
        try:
            await _play_all(await server.connect(), folder)
        finally:
            server.stop()


async def _play_all(client: Client, folder: Path) -> None:
    for story in STORIES:
        file = folder / f"{story.__name__}.json"
        if file.exists():
            continue
        async with served(client) as stage:
            handle = await story(stage)
            history = await handle.fetch_history()
        file.write_text(impersonal(history.to_json()))


def impersonal(history: str) -> str:
    """Without what tells of the machine that it was recorded on."""
    history = re.sub(r'"identity": "[^"]*"', '"identity": "worker"', history)
    history = re.sub(r'"stackTrace": "(?:[^"\\]|\\.)*"', '"stackTrace": ""', history)
    return history.replace(str(Path.cwd()), "")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
