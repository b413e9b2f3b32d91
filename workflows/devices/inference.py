"""The inference of a device: what it shall run, and what it does."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.devices import (
    DeviceEvent,
    DeviceRequest,
    DeviceRun,
    DeviceWish,
    InferenceStatus,
    WishOutcome,
)
from workflows.contracts.errors import LOSSES
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges
from workflows.devices.steps import DeviceSteps
from workflows.effects.devices import (
    DeviceSwitched,
    DeviceWishesFound,
    DiscardDeviceSpecs,
    FindDeviceWishes,
    SealDeviceSpec,
    StageOnDevice,
    StopDevice,
    SwitchDevice,
    discard_device_specs,
    find_device_wishes,
    seal_device_spec,
    stage_on_device,
    stop_device,
    switch_device,
)
from workflows.hosts.connection import raise_if_violated
from workflows.hosts.location import HostLocation
from workflows.primitives.failures import EFFECT_FAILED, cause_of

MOST_WORDS = 2000
LOSS_LIMIT = timedelta(hours=4)
"""For how long a wish is tried again on a device that is lost again and again."""
LOSS_PAUSE = timedelta(seconds=10)
LAST_LOSS_PAUSE = timedelta(minutes=5)
"""Between two tries: at first, and the longest."""
_EVENTS = {
    InferenceStatus.RUNNING: DeviceEvent.INFERENCE_RUNNING,
    InferenceStatus.STOPPED: DeviceEvent.INFERENCE_STOPPED,
    InferenceStatus.FAILED: DeviceEvent.INFERENCE_FAILED,
}


class Inference:
    """The inference of one device: at most one wish is followed at a time.

    is_reachable: probes the device after a failure on it; a device that cannot be reached keeps
    its wish.
    """

    def __init__(
        self,
        request: DeviceRequest,
        location: HostLocation,
        steps: DeviceSteps,
        is_reachable: Callable[[str], Coroutine[Any, Any, bool]],
    ) -> None:
        resumed_from = request.resumed_from
        self._device_id = request.device_id
        self._location = location
        self._steps = steps
        self._is_reachable = is_reachable
        self.followed = resumed_from.followed if resumed_from else None
        """The last wish that came to an end on the device."""
        self.run = resumed_from.run if resumed_from else DeviceRun()
        """What the device said last."""
        self.wish: DeviceWish | None = None
        """The newest wish in the row, as it was read last."""

    async def find(self) -> DeviceWishesFound:
        """What is wanted of the device, from its row."""
        found = await find_device_wishes.run_locally(FindDeviceWishes(device_id=self._device_id))
        self.wish = found.wish
        return found

    @property
    def due(self) -> DeviceWish | None:
        """The newest wish; None: there is none, or it has come to an end on the device."""
        followed = self.followed.number if self.followed else 0
        return self.wish if self.wish is not None and self.wish.number > followed else None

    def is_newer_than(self, wish: DeviceWish) -> bool:
        """Whether the row has a newer wish than this one."""
        return self.wish is not None and self.wish.number > wish.number

    async def follow(self, wish: DeviceWish) -> None:
        """Have the device run what is wanted, and record what it came to.

        What the device runs is not touched until everything is on it. A device that cannot be
        reached keeps the wish, which is followed when it is back; one that was lost and is there
        again is tried again.

        Raises: ProtocolViolatedError.
        """
        await self._record_begin(wish)
        deadline, pause = workflow.now() + LOSS_LIMIT, LOSS_PAUSE
        while True:
            try:
                switched = await (self._stop(wish) if wish.revision is None else self._deploy(wish))
                break
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                raise_if_violated(failure)
                kind, message = cause_of(failure)
                why = message[:MOST_WORDS]
                if not await self._is_reachable(why):
                    return
                if kind not in LOSSES or workflow.now() >= deadline:
                    switched = DeviceSwitched(run=self.run, failed=why)
                    break
            await workflow.sleep(pause, summary="it was lost, and is there again")
            pause = min(2 * pause, LAST_LOSS_PAUSE)
        await self._record_end(wish, switched)

    async def observe(self, run: DeviceRun) -> None:
        """Record what the device does now, if that is new."""
        if run == self.run:
            return
        self.run = run
        words = run.reason or f"its inference is {run.status}"
        if run.exit_code is not None:
            words = f"exit code {run.exit_code}: {words}"
        event = Event(type=_EVENTS[run.status], message=words[:MOST_WORDS])
        await self._steps.record_changes(DeviceChanges(run=run), (event,))

    async def discard_specs(self, number: int | None = None) -> None:
        """Remove the specs up to a wish, by default all; what is left goes with the device."""
        command = DiscardDeviceSpecs(device_id=self._device_id, number=number)
        try:
            await discard_device_specs(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            words = f"what was sealed for it is still stored: {cause_of(failure)[1]}"
            left = Event(type=DeviceEvent.SPEC_LEFT, message=words)
            await self._steps.record_event(left)

    async def _stop(self, wish: DeviceWish) -> DeviceSwitched:
        return await stop_device(StopDevice(node=self._location.address(), number=wish.number))

    async def _deploy(self, wish: DeviceWish) -> DeviceSwitched:
        sealed = await seal_device_spec(SealDeviceSpec(device_id=self._device_id, wish=wish))
        there = self._location.address()
        await stage_on_device(
            StageOnDevice(node=there, number=wish.number, spec=sealed.reference),
            summary=f"revision {wish.revision} of {wish.configuration_id}",
        )
        command = SwitchDevice(node=there, number=wish.number, health=sealed.health)
        return await switch_device(command, summary=f"revision {wish.revision}")

    async def _record_begin(self, wish: DeviceWish) -> None:
        words = "its inference is to be stopped"
        if wish.revision is not None:
            words = f"revision {wish.revision} of {wish.configuration_id}"
        begins = Event(type=DeviceEvent.DEPLOYING, message=words)
        await self._steps.record_changes(DeviceChanges(deploying=wish), (begins,))

    async def _record_end(self, wish: DeviceWish, switched: DeviceSwitched) -> None:
        self.followed, self.run = wish, switched.run
        ends = Event(type=DeviceEvent.DEPLOYED, message=_came_to(wish))
        if switched.failed is not None:
            ends = Event(type=DeviceEvent.DEPLOYMENT_FAILED, message=switched.failed[:MOST_WORDS])
        elif wish.revision is None:
            ends = Event(type=DeviceEvent.INFERENCE_STOPPED, message=_came_to(wish))
        outcome = WishOutcome(wish=wish, failed=switched.failed)
        changes = DeviceChanges(run=switched.run, outcome=outcome)
        await self._steps.record_changes(changes, (ends,))
        await self.discard_specs(wish.number)


def _came_to(wish: DeviceWish) -> str:
    if wish.revision is None:
        return f"stopped by {wish.requested_by or 'a person'}"
    return f"runs revision {wish.revision} of {wish.configuration_id}"
