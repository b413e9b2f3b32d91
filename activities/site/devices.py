"""The activities by which a device's lifecycle gives it an inference, and hears what it does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Coroutine, Generator
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.site.answers.devices import (
    Cleared,
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
from activities.temporal.next_watch import NEXT_WATCH_AFTER
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.devices import DeviceRun, device_run_id
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.effects.devices import (
    ClearDevice,
    DeviceCleared,
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
BACKLOG_INTERVAL_S = 60.0
SILENCE_S = 90.0
"""How long we wait for a frame; the device sends a beat every 30 s. That the machine is away shows
earlier, because it does not answer the keepalives of its connection."""
HEADER_BYTES_PER_S = 32 << 10
"""The lasting rate of what one device says in its watch: our watcher says a third at most."""
HEADER_BYTES_AT_ONCE = 1 << 20
BEAT_S = 400.0
"""Between two heartbeats of a watch."""

_watches: dict[str, asyncio.Event] = {}
"""The watches of this process, by device; each ends when its event is set."""


@activity.defn
async def stage_on_device(command: StageOnDevice) -> StagedOnDevice:
    """Bring image, model, checkpoints and spec of an assignment to the device beside what runs.

    Raises: WORK_REFUSED with what its owner can do; UNAVAILABLE, when an image registry or a
    package index is away; NODE_REFUSED, as where it has no systemd; REFUSED or NOT_FOUND when the
    spec cannot be read; all failures of `NodeClient`.
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
        client = NodeClient(node, away=errors.UNAVAILABLE)
        staging = asyncio.create_task(
            client.call("stage_device", request, Nothing, limit_s=STAGE_S)
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
    if spec.output_buffer is not None:
        more |= {"output_buffer": spec.output_buffer.model_dump(mode="json")}
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

    Raises: NODE_REFUSED, when nothing is staged for it; CONTENT_MISSING, when a content of it is
    not on the device any more; all failures of `NodeClient`.
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
    return DeviceSwitched(run=answer.device_run(), failed=answer.failed)


@activity.defn
async def clear_device(command: ClearDevice) -> DeviceCleared:
    """End the inference, and remove all that the device has of it; a repeat changes nothing.

    Raises: all failures of `NodeClient`.
    """
    async with heartbeating():
        client = NodeClient(command.node)
        cleared = await client.call("clear_device", {}, Cleared, limit_s=CLEAR_S)
    return DeviceCleared(lost_files=cleared.lost_files)


@activity.defn
async def watch_device(command: WatchDevice) -> DeviceObserved:
    """Watch the device until what it runs is different from what is known of it.

    Raises: NODE_UNREACHABLE when the connection is lost or the watcher is silent,
    HOST_KEY_MISMATCH, LOGIN_REFUSED; PROTOCOL_VIOLATION; OUTCOME_UNKNOWN when the machine has
    restarted; WORKER_STOPS when this worker process stops, so that the next one continues, and when
    another watch of the device has begun here.
    """
    device_id = command.node.node_id
    with _only_watch(device_id) as is_replaced:
        async with heartbeating(BEAT_S):
            waits = is_replaced.wait(), activity.wait_for_worker_shutdown()
            seen = await first_of(_differing(command), *map(_nothing, waits))
        why = (
            "another watch" if is_replaced.is_set() else "the worker process that watches it stops"
        )
    if seen is None:
        raise ApplicationError(
            f"{device_id}: {why}",
            type=errors.WORKER_STOPS,
            non_retryable=is_replaced.is_set(),
            next_retry_delay=NEXT_WATCH_AFTER,
            category=ApplicationErrorCategory.BENIGN,
        )
    return DeviceObserved(run=seen)


async def _nothing(end: Coroutine[Any, Any, object]) -> None:
    await end


def watched_devices() -> Collection[str]:
    """The ids of the devices that this process watches now."""
    return _watches.keys()


@contextlib.contextmanager
def _only_watch(device_id: str) -> Generator[asyncio.Event]:
    """Be the one watch of a device in this process, until another one sets the event.

    The lifecycle has cancelled the earlier one, which would hear of it with its next heartbeat.
    """
    if (earlier := _watches.get(device_id)) is not None:
        earlier.set()
    is_replaced = _watches[device_id] = asyncio.Event()
    try:
        yield is_replaced
    finally:
        if _watches.get(device_id) is is_replaced:
            del _watches[device_id]


async def _differing(command: WatchDevice) -> DeviceRun | None:
    """The run that the device reports, once it is another one than is known.

    What differs in its output alone is reported once a minute at most, since that may change with
    every file that the device writes.
    """
    node, loop, found = command.node, asyncio.get_running_loop(), command.known
    backlog_at = loop.time() + BACKLOG_INTERVAL_S
    client, rate = NodeClient(node), TokenBucket(FRAMES_PER_S, FRAMES_AT_ONCE)
    pace = TokenBucket(HEADER_BYTES_PER_S, HEADER_BYTES_AT_ONCE).delay_s
    async with client.stream("watch_device", {}, eof=False, loss=errors.NODE_UNREACHABLE) as stream:
        frames = device_frames(stream, client.speaker("watch_device"), pace)
        async for frame in _within_limit(node, frames):
            if (delay_s := rate.delay_s()) > 0:  # Else many frames would leave no time to others.
                await asyncio.sleep(delay_s)
            if isinstance(frame, RunFrame):
                if command.boot_id not in ("", frame.boot_id):
                    raise ApplicationError(
                        f"{node.node_id}: the machine has restarted", type=errors.OUTCOME_UNKNOWN
                    )
                found = frame.device_run()
            is_due = loop.time() >= backlog_at
            if not found.does_as(command.known) or (is_due and found != command.known):
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
