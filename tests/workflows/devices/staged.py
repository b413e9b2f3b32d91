"""Devices and deployments in the tests' world, beside the other lifecycles."""

import uuid
from collections.abc import Set as AbstractSet
from functools import partial

from temporalio.client import WorkflowHandle

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_devices import JETSON
from tests.workflows.fake_machines import Machine
from tests.workflows.fake_world import REGION
from workflows.contracts import queues
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentReport,
    DeploymentRequest,
    RolloutPolicy,
    TargetState,
)
from workflows.contracts.devices import DeviceReport, DeviceRequest
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle

DEVICE, DEPLOYMENT = "dev-1", "dpl-1"
Device = WorkflowHandle[DeviceLifecycle, DeviceReport]
Deployment = WorkflowHandle[DeploymentLifecycle, DeploymentReport]


async def onboarded(stage: Stage) -> Device:
    """The lifecycle of an active device."""
    stage.world.machines[DEVICE] = Machine(hardware=JETSON)
    request = DeviceRequest(
        device_id=DEVICE, account_id="acc-1", region_id=REGION, name="shop-1",
        minion_id="SHA256:key", host="10.0.0.1",
    )  # fmt: skip
    handle: Device = await stage.client.start_workflow(
        DeviceLifecycle.run, request, id=f"device/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, DEVICE, "active")
    return handle


async def deployed(
    stage: Stage, handle: Device, revision: int | None, *, failed: str | None = None
) -> None:
    """Ask for a revision, and wait until the device has come to an end with it."""
    assignment = stage.world.assignment(DEVICE, revision)
    await handle.signal(DeviceLifecycle.wake)
    ends = stage.world.outcomes[DEVICE]
    await eventually(
        lambda: ends[-1:] == [(assignment.number, failed)],
        f"assignment {assignment.number} has ended",
    )


async def rollout(stage: Stage, *, away: AbstractSet[str] = frozenset()) -> Deployment:
    """A deployment to three devices, one by one."""
    rollout = stage.world.rollouts[DEPLOYMENT]
    rollout.states = dict.fromkeys(("dev-1", "dev-2", "dev-3"), TargetState.WAITING)
    rollout.away = set(away)
    request = DeploymentRequest(
        deployment_id=DEPLOYMENT, account_id="acc-1", region_id=REGION, name="detector",
        policy=RolloutPolicy(max_unavailable=1),
    )  # fmt: skip
    handle: Deployment = await stage.client.start_workflow(
        DeploymentLifecycle.run,
        request,
        id=f"deployment/{uuid.uuid4().hex}",
        task_queue=queues.MAIN,
    )
    await reaches(stage, DEPLOYMENT, "rolling_out")
    return handle


def order(action: DeploymentAction) -> DeploymentOrder:
    return DeploymentOrder(action=action, requested_by="ada")


async def runs(stage: Stage, device: str, handle: Deployment) -> None:
    """Wait until the device runs what was asked; the deployment hears of every one."""
    states = stage.world.rollouts[DEPLOYMENT].states
    events = stage.world.events[DEPLOYMENT]
    for _ in states:
        if states[device] is TargetState.RUNNING:
            return
        before = len(events)
        await handle.signal(DeploymentLifecycle.wake)
        await eventually(partial(_is_longer, events, before), "they are counted")
    assert states[device] is TargetState.RUNNING


def _is_longer(events: list[str], before: int) -> bool:
    return len(events) > before


async def reaches(stage: Stage, resource_id: str, status: str) -> None:
    await eventually(
        lambda: stage.world.statuses[resource_id][-1:] == [status], f"{resource_id} is {status}"
    )
