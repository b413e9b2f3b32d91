"""The activities by which a device's lifecycle gives it an inference, and hears what it does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.site.answers.devices import (
    DeviceFrame,
    DeviceState,
    RunFrame,
    Switched,
    device_frames,
)
from activities.site.answers.verbs import Nothing
from activities.site.contents import bring_contents, together
from activities.site.datastore_networks import networks_for_agent
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.site.signal_rates import FRAMES_AT_ONCE, FRAMES_PER_S, TokenBucket
from activities.site.staging import PODMAN, PROCESS, open_spec, staging_request
from activities.storage.run_specs import Isolation, RunSpec
from activities.temporal.first_of import first_of
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.base import Done
from workflows.contracts.devices import DeviceRun, device_run_id
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.effects.devices import (
    ClearDevice,
    DeviceObserved,
    DeviceSwitched,
    StagedOnDevice,
    StageOnDevice,
    StopDevice,
    SwitchDevice,
    WatchDevice,
)

STATUS_S = 30.0
STAGE_S = 3400.0
SWITCH_S = 7100.0
"""The device's own limit is below it, so that its words win."""
STOP_S = 110.0
CLEAR_S = 110.0
SILENCE_S = 12.0
"""How long we wait for a frame; the device sends a beat every 2 s."""


@activity.defn
async def stage_on_device(command: StageOnDevice) -> StagedOnDevice:
    """Bring image, model, checkpoints and spec of an assignment to the device beside what runs.

    Raises: WORK_REFUSED with what its owner can do; NODE_REFUSED, as where it has no systemd;
    REFUSED or NOT_FOUND when the spec cannot be read; all failures of `NodeClient`.
    """
    node = command.node
    run_id = device_run_id(node.node_id, command.number)
    async with heartbeating():
        state = await NodeClient(node).call("device_status", {}, DeviceState, limit_s=STATUS_S)
        if state.no_unit_reason is not None:  # Before gigabytes are on their way.
            words = f"{node.node_id}: {state.no_unit_reason}"
            raise ApplicationError(words, {"code": "no-unit"}, type=errors.NODE_REFUSED)
        if command.number <= state.done:  # The switch answers what it came to.
            return StagedOnDevice()
        spec = await open_spec(command.spec, run_id, node.region_id)
        request = await _request(node, spec, command.number)
        staging = asyncio.create_task(
            NodeClient(node).call("stage_device", request, Nothing, limit_s=STAGE_S)
        )
        bringing = asyncio.create_task(bring_contents(node, run_id, spec.contents, spec.cache))
        async with together(staging, bringing):
            _, brought = await asyncio.gather(staging, bringing)
    return StagedOnDevice(fetched_bytes=brought.fetched_bytes if brought else 0)


async def _request(node: NodeAddress, spec: RunSpec, number: int) -> dict[str, Any]:
    roles = {each.role for each in spec.contents}
    more: dict[str, Any] = {
        # Its unit is the keeper's, which starts the command as a process of its own.
        "runtime": PODMAN if spec.image is not None else PROCESS,
        "starts_in_model": ArtifactRole.MODEL in roles,
        "has_media": True,
    }
    if spec.datastores:
        networks = await asyncio.to_thread(networks_for_agent)
        more |= {name: one.for_agent(networks) for name, one in spec.datastores.items()}
    request = await staging_request(node, spec, _isolation(node, spec), more)
    return {**request, "number": number}


def _isolation(node: NodeAddress, spec: RunSpec) -> Isolation:
    """How the inference is isolated, as it was sealed; for another device it is refused."""
    isolation = spec.isolation
    if isolation is None:
        raise ApplicationError(
            f"{spec.run_id}: its spec has no isolation", type=errors.REFUSED, non_retryable=True
        )
    same = WorkerAssignment(
        worker=0, node=node, job_user=isolation.job_user, gpu_uuids=isolation.gpu_uuids
    )
    if (difference := isolation.difference(node, same)) is not None:
        raise ApplicationError(
            f"{spec.run_id}: asked {difference}", type=errors.REFUSED, non_retryable=True
        )
    return isolation


@activity.defn
async def switch_device(command: SwitchDevice) -> DeviceSwitched:
    """Have the device run what is staged for an assignment; a repeat answers what it came to.

    Raises: NODE_REFUSED, when nothing is staged for it; all failures of `NodeClient`.
    """
    request = {
        "number": command.number,
        "run_id": RunNames(command.node).of(device_run_id(command.node.node_id, command.number)),
        "health": command.health.model_dump(),
    }
    return await _ask(command.node, "switch_device", request, SWITCH_S)


@activity.defn
async def stop_device(command: StopDevice) -> DeviceSwitched:
    """Stop the inference, also for the next boot; a repeat changes nothing.

    Raises: all failures of `NodeClient`.
    """
    return await _ask(command.node, "stop_device", {"number": command.number}, STOP_S)


async def _ask(
    node: NodeAddress, verb: str, request: dict[str, Any], limit_s: float
) -> DeviceSwitched:
    async with heartbeating():
        answer = await NodeClient(node).call(verb, request, Switched, limit_s=limit_s)
    return DeviceSwitched(run=answer.run.run(), failed=answer.failed)


@activity.defn
async def clear_device(command: ClearDevice) -> Done:
    """End the inference, and remove all that the device has of it; a repeat changes nothing.

    Raises: all failures of `NodeClient`.
    """
    async with heartbeating():
        await NodeClient(command.node).call("clear_device", {}, Nothing, limit_s=CLEAR_S)
    return Done()


@activity.defn
async def watch_device(command: WatchDevice) -> DeviceObserved:
    """Watch the device until what it runs is different from what is known of it.

    Raises: NODE_UNREACHABLE when the connection is lost or the watcher is silent,
    HOST_KEY_MISMATCH, LOGIN_REFUSED; PROTOCOL_VIOLATION; OUTCOME_UNKNOWN when the machine has
    restarted; WORKER_STOPS when this worker process stops, so that the next one continues.
    """
    async with heartbeating():
        seen = await first_of(_differing(command), _until_the_worker_stops())
    if seen is None:
        raise ApplicationError(
            f"{command.node.node_id}: the worker process that watches the device stops",
            type=errors.WORKER_STOPS,
            category=ApplicationErrorCategory.BENIGN,
        )
    return DeviceObserved(run=seen)


async def _until_the_worker_stops() -> None:
    await activity.wait_for_worker_shutdown()


async def _differing(command: WatchDevice) -> DeviceRun | None:
    """The run that the device reports, once it is another one than is known."""
    node = command.node
    client, rate = NodeClient(node), TokenBucket(FRAMES_PER_S, FRAMES_AT_ONCE)
    async with client.stream("watch_device", {}, eof=False, loss=errors.NODE_UNREACHABLE) as stream:
        frames = device_frames(stream, client.speaker("watch_device"))
        async for frame in _within_limit(node, frames):
            if (delay_s := rate.delay_s()) > 0:  # Else many frames would leave no time to others.
                await asyncio.sleep(delay_s)
            if not isinstance(frame, RunFrame):
                continue
            if command.boot_id not in ("", frame.boot_id):
                raise ApplicationError(
                    f"{node.node_id}: the machine has restarted", type=errors.OUTCOME_UNKNOWN
                )
            if (found := frame.run.run()) != command.known:
                return found
    raise _unreachable(node, "ended")


async def _within_limit(
    node: NodeAddress, source: AsyncIterator[DeviceFrame]
) -> AsyncIterator[DeviceFrame]:
    """The frames, each within `SILENCE_S`."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                frame = await anext(source)
        except TimeoutError as error:
            raise _unreachable(node, f"was silent for {SILENCE_S:g} s") from error
        except StopAsyncIteration as error:
            raise _unreachable(node, "ended") from error
        yield frame


def _unreachable(node: NodeAddress, what: str) -> ApplicationError:
    words = f"{node.node_id}: its watcher {what}"
    return ApplicationError(words, type=errors.NODE_UNREACHABLE)
