"""The inference of a device: what it shall run, and what it does."""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceAssignment,
    DeviceEvent,
    DeviceRequest,
    DeviceRun,
    InferenceStatus,
)
from workflows.contracts.errors import CONTENT_MISSING, LOSSES
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges
from workflows.devices.steps import DeviceSteps
from workflows.effects.devices import (
    AssignmentFound,
    DeviceSpecSealed,
    DeviceSwitched,
    DiscardDeviceSpecs,
    FindAssignment,
    SealDeviceSpec,
    StageOnDevice,
    StopDevice,
    SwitchDevice,
    discard_device_specs,
    find_assignment,
    seal_device_spec,
    stage_on_device,
    stop_device,
    switch_device,
)
from workflows.hosts.connection import raise_if_violated
from workflows.hosts.location import HostLocation
from workflows.primitives.failures import EFFECT_FAILED, UNSERVED, cause_of

MOST_CHARACTERS = 2000
LOSS_LIMIT = timedelta(hours=4)
"""For how long an assignment is tried again on a device that is lost again and again."""
LOSS_PAUSE = timedelta(seconds=10)
LAST_LOSS_PAUSE = timedelta(minutes=5)
"""Between two tries: at first, and the longest."""
STAGINGS = 4
"""How often a revision is staged for one switch: a cut of the power may take what was staged."""
STAGES_AGAIN = "missing-contents-are-staged-again"
ENDS_RECORDED = "the-end-of-an-assignment-is-recorded"
"""The patch marks of what histories of before do not have."""
_EVENTS = {
    InferenceStatus.DEPLOYING: DeviceEvent.DEPLOYING,
    InferenceStatus.RUNNING: DeviceEvent.INFERENCE_RUNNING,
    InferenceStatus.STOPPED: DeviceEvent.INFERENCE_STOPPED,
    InferenceStatus.FAILED: DeviceEvent.INFERENCE_FAILED,
}


class Inference:
    """The inference of one device: at most one assignment is followed at a time.

    is_reachable: probes the device after a failure on it; a device that cannot be reached keeps
    its assignment.
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
        """The last assignment that came to an end on the device."""
        self.run = resumed_from.run if resumed_from else DeviceRun()
        """What the device said last; *deploying* from the begin of an assignment to its end."""
        self.is_switching = False
        """Whether the device is being switched or stopped, which maintenance does not interrupt."""
        self.is_recording = False
        """Whether the end of an assignment is being recorded, which is not to be interrupted."""
        self.assignment: DeviceAssignment | None = None
        """The newest assignment in the row, as it was read last."""

    async def find(self) -> AssignmentFound:
        """What is wanted of the device, from its row."""
        found = await find_assignment.run_locally(FindAssignment(device_id=self._device_id))
        self.assignment = found.assignment
        return found

    @property
    def due(self) -> DeviceAssignment | None:
        """The newest assignment; None: there is none, or it has come to an end on the device."""
        followed = self.followed.number if self.followed else 0
        return (
            self.assignment
            if self.assignment is not None and self.assignment.number > followed
            else None
        )

    def is_newer_than(self, assignment: DeviceAssignment) -> bool:
        """Whether the row has a newer assignment than this one."""
        return self.assignment is not None and self.assignment.number > assignment.number

    async def follow(self, assignment: DeviceAssignment) -> None:
        """Have the device run what is wanted, and record what it came to.

        What the device runs is not touched until everything is on it. A device that cannot be
        reached keeps the assignment, which is followed when it is back; one that was lost and is
        there again is tried again.

        Raises: ProtocolViolatedError.
        """
        before = self.run
        await self._record_begin(assignment)
        deadline, pause = workflow.now() + LOSS_LIMIT, LOSS_PAUSE
        while True:
            try:
                switched = await (
                    self._stop(assignment)
                    if assignment.revision is None
                    else self._deploy(assignment)
                )
                break
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                raise_if_violated(failure)
                kind, message = cause_of(failure)
                why = message[:MOST_CHARACTERS]
                if not await self._is_reachable(why):
                    return
                if kind not in (*LOSSES, UNSERVED) or workflow.now() >= deadline:
                    switched = DeviceSwitched(run=before, failed=why)
                    break
            await workflow.sleep(pause, summary="it was lost, and is there again")
            pause = min(2 * pause, LAST_LOSS_PAUSE)
        await self._record_end(assignment, switched)

    async def observe(self, run: DeviceRun) -> None:
        """Record what the device does now, if that is new; of its output alone without an event."""
        if run == self.run:
            return
        is_same, self.run = run.does_as(self.run), run
        if is_same:
            await self._steps.record_changes(DeviceChanges(run=run), ())
            return
        words = run.reason or f"its inference is {run.status}"
        if run.exit_code is not None:
            words = f"exit code {run.exit_code}: {words}"
        event = Event(type=_EVENTS[run.status], message=words[:MOST_CHARACTERS])
        await self._steps.record_changes(DeviceChanges(run=run), (event,))

    async def discard_specs(self, number: int | None = None) -> None:
        """Remove the specs up to an assignment, or all; what is left goes with the device."""
        command = DiscardDeviceSpecs(device_id=self._device_id, number=number)
        try:
            await discard_device_specs(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            words = f"what was sealed for it is still stored: {cause_of(failure)[1]}"
            left = Event(type=DeviceEvent.SPEC_LEFT, message=words)
            await self._steps.record_event(left)

    async def _stop(self, assignment: DeviceAssignment) -> DeviceSwitched:
        command = StopDevice(node=self._location.address(), number=assignment.number)
        return await self._switching(stop_device(command))

    async def _deploy(self, assignment: DeviceAssignment) -> DeviceSwitched:
        sealed = await seal_device_spec(
            SealDeviceSpec(device_id=self._device_id, assignment=assignment)
        )
        staged = 0
        while True:
            await self._stage(assignment, sealed)
            staged += 1
            try:
                return await self._switch(assignment, sealed)
            except EFFECT_FAILED as failure:
                kind, reason = cause_of(failure)
                is_gone = kind == CONTENT_MISSING and staged < STAGINGS
                if not is_gone or not workflow.patched(STAGES_AGAIN):
                    raise
                words = f"is staged again: {reason}"[:MOST_CHARACTERS]
                again = Event(type=DeviceEvent.DEPLOYING, message=words)
                await self._steps.record_event(again)

    async def _stage(self, assignment: DeviceAssignment, sealed: DeviceSpecSealed) -> None:
        there, number = self._location.address(), assignment.number
        await stage_on_device(
            StageOnDevice(node=there, number=number, spec=sealed.reference),
            summary=f"revision {assignment.revision} of {assignment.configuration_id}",
        )

    async def _switch(
        self, assignment: DeviceAssignment, sealed: DeviceSpecSealed
    ) -> DeviceSwitched:
        there, number = self._location.address(), assignment.number
        command = SwitchDevice(node=there, number=number, health=sealed.health)
        switch = switch_device(command, summary=f"revision {assignment.revision}")
        return await self._switching(switch)

    async def _switching(self, work: Awaitable[DeviceSwitched]) -> DeviceSwitched:
        self.is_switching = True
        try:
            return await work
        finally:
            self.is_switching = False

    async def _record_begin(self, assignment: DeviceAssignment) -> None:
        words = "its inference is to be stopped"
        if assignment.revision is not None:
            words = f"revision {assignment.revision} of {assignment.configuration_id}"
        begins = Event(type=DeviceEvent.DEPLOYING, message=words)
        # Where it never comes to its end, as in maintenance, the watch says what runs all the same.
        self.run = self.run.model_copy(update={"status": InferenceStatus.DEPLOYING})
        await self._steps.record_changes(DeviceChanges(deploying=assignment), (begins,))

    async def _record_end(self, assignment: DeviceAssignment, switched: DeviceSwitched) -> None:
        self.followed, self.run = assignment, switched.run
        ends = Event(type=DeviceEvent.DEPLOYED, message=_came_to(assignment))
        if switched.failed is not None:
            ends = Event(
                type=DeviceEvent.DEPLOYMENT_FAILED, message=switched.failed[:MOST_CHARACTERS]
            )
        elif assignment.revision is None:
            ends = Event(type=DeviceEvent.INFERENCE_STOPPED, message=_came_to(assignment))
        outcome = AssignmentOutcome(assignment=assignment, failed=switched.failed)
        changes = DeviceChanges(run=switched.run, outcome=outcome)
        self.is_recording = workflow.patched(ENDS_RECORDED)
        try:
            await self._steps.record_changes(changes, (ends,))
        finally:
            self.is_recording = False
        await self.discard_specs(assignment.number)


def _came_to(assignment: DeviceAssignment) -> str:
    if assignment.revision is None:
        return f"stopped by {assignment.requested_by or 'a person'}"
    return f"runs revision {assignment.revision} of {assignment.configuration_id}"
