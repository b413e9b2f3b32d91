"""The lifecycle of a device."""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.contracts.base import Contract
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceEvent,
    DeviceProgress,
    DeviceReport,
    DeviceRequest,
    DeviceStatus,
    WatchLost,
)
from workflows.contracts.errors import PROTOCOL_VIOLATION
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges, Refresh, Wake
from workflows.contracts.nodes import Hardware, Reboot, Requirement
from workflows.contracts.removals import Removal
from workflows.devices.inference import Inference
from workflows.devices.steps import DeviceSteps
from workflows.effects.devices import (
    ClearDevice,
    DeviceObserved,
    WatchDevice,
    clear_device,
    watch_device,
)
from workflows.hosts.connection import HostConnection, ProtocolViolatedError, raise_if_violated
from workflows.hosts.inspection import Inspection
from workflows.hosts.location import HostLocation, refusal
from workflows.hosts.outage import Outage
from workflows.hosts.preparation import prepared
from workflows.hosts.relocation import Relocation
from workflows.hosts.watch_pauses import WatchPauses
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, wait_until, while_handling
from workflows.rules.devices.models import requirements_of
from workflows.rules.nodes.onboarding import describe_preparation, shown_cause

FAILED_INTERVAL = timedelta(hours=6)
UPKEEP_INTERVAL = timedelta(hours=6)
"""Between two inspections, which read the row again as well, because a wake may have been lost."""
_ONBOARDED = (
    DeviceStatus.ACTIVE,
    DeviceStatus.MAINTENANCE,
    DeviceStatus.OFFLINE,
    DeviceStatus.REMOVING,
)
_REPEATED = (Wake, Refresh, WatchLost)
"""The messages that the next workflow run can miss, because it reads the row when it resumes."""


@workflow.defn(name="DeviceLifecycle")
class DeviceLifecycle:
    """The lifecycle of one device, from its addition to its removal.

    connecting → inspecting → preparing → active ⇄ maintenance · offline · removing → archived;
    failed until the machine announces itself again.
    """

    @workflow.init
    def __init__(self, request: DeviceRequest) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self._journal = Journal(
            request.device_id,
            request.account_id,
            resumed_from.sequence if resumed_from else request.sequence,
            resumed_from.reason if resumed_from else None,
        )
        self._journal.next_run = self._next_run
        self._inbox = Inbox()
        self._removal = resumed_from.removal if resumed_from else None
        self._steps = steps = DeviceSteps(request, self._journal)
        self._location = HostLocation(request)
        self._connection = HostConnection(request, self._location, steps.record_event)
        self._inspection = Inspection(
            request, self._location, steps.record_changes, self._requirements
        )
        relocation = Relocation(self._location, self._connection, steps.record_changes)
        self._outage = Outage(
            steps, self._connection, relocation, self._ignore_outage, self._ignore_return
        )
        self._inference = Inference(request, self._location, steps, self._probe)
        self._watch: workflow.ActivityHandle[DeviceObserved] | None = None
        self._watch_at: datetime | None = None
        """When the next watch begins, which waits."""
        self._pauses = WatchPauses()

    @workflow.run
    async def run(self, _: DeviceRequest) -> DeviceReport:
        if self._steps.status is DeviceStatus.FAILED:
            await self._rest_failed()
        if self._steps.status not in _ONBOARDED:
            await self._onboard()
        while self._removal is None:
            try:
                await self._serve()
            except ProtocolViolatedError as violation:
                await self._fail_for(str(violation))
                await self._onboard()
        await self._remove()
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _onboard(self) -> None:
        """Connect, inspect and prepare; after a failure wait until the machine is announced."""
        while self._removal is None:
            try:
                for step in (self._connect, self._inspect, self._prepare):
                    await interruptible(step(), when=self._is_removed)
            except Interrupted:
                return
            except EFFECT_FAILED as failure:
                await self._fail(failure)
            else:
                return

    async def _connect(self) -> None:
        """Wait for the machine, and connect to it; its host key proves that it is the right one."""
        self._steps.status = DeviceStatus.CONNECTING
        await self._write(DeviceEvent.CONNECTING, "waits for the machine")
        await self._connection.await_announcement(self._inbox)
        node = self._location.address()
        found = Event(type=DeviceEvent.FOUND, message=f"at {node.host}:{node.port}")
        await self._steps.write(found, changes=self._location.changes())
        await self._connection.connect(self._inbox, self._show_cause)

    async def _show_cause(self, kind: str, message: str) -> None:
        cause = {"cause": shown_cause(kind)}
        event = Event(type=DeviceEvent.NOT_REACHED, message=message, details=cause)
        await self._steps.write(event, reason=message)

    async def _inspect(self) -> None:
        """Inspect the machine, which must be a device that the platform knows."""
        self._steps.status = DeviceStatus.INSPECTING
        connected = Event(type=DeviceEvent.CONNECTED, message="its host key is the expected one")
        await self._steps.write(connected, changes=self._location.changes())
        if missed := await self._inspection.first(lambda _: ""):
            raise refusal(self._request, missed)

    async def _prepare(self) -> None:
        """Prepare the machine; a device is active after that."""
        self._steps.status = DeviceStatus.PREPARING
        await self._write(DeviceEvent.PREPARING, "is being prepared")
        if self._inspection.asks_for_a_restart and self._request.exclusive:
            await self._connection.restart()
        preparation = await prepared(self._request, self._location)
        if self._inference.followed is None:
            # An earlier device on this machine may have been removed while nobody reached it.
            await clear_device(ClearDevice(node=self._location.address()))
        self._steps.status = self._steps.resume_status
        words = describe_preparation(preparation, exclusive=self._request.exclusive)
        await self._steps.write(
            Event(type=DeviceEvent.PREPARED, message=words),
            changes=DeviceChanges(preparation=preparation),
        )

    async def _serve(self) -> None:
        """Watch the device and handle messages, until its watch fails or it is removed."""
        if self._steps.status is DeviceStatus.OFFLINE:
            await self._reconnect()
        if self._is_removed() or not await self._pause() or not await self._online():
            return
        self._start_watch()
        self.wake()  # What is wanted may have changed while nobody read it.
        upkeep_at = workflow.now() + UPKEEP_INTERVAL
        while self._removal is None and self._is_watched:
            left = min(upkeep_at, self._watch_at or upkeep_at) - workflow.now()
            left = max(timedelta(0), left)
            await wait_until(lambda: bool(self._inbox) or self._watch_has_ended, left, "messages")
            if self._watch_has_ended:
                await self._take_observation()
            elif self._watch_at is not None and workflow.now() >= self._watch_at:
                self._start_watch()
            if workflow.now() >= upkeep_at and self._is_watched:
                upkeep_at = workflow.now() + UPKEEP_INTERVAL
                await self._keep_up()
            while self._removal is None and self._is_watched and (message := self._inbox.take()):
                await self._handle(message)
            await self._journal.continue_when_long()

    async def _pause(self) -> bool:
        """Wait as long as the next watch must. False: the device is removed."""
        if pause := self._pauses.next:
            await wait_until(self._is_removed, pause, "its watches were short")
        return self._removal is None

    async def _take_observation(self) -> None:
        """Record what the watch has seen and watch on; a failed watch leaves none."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        self._pauses.end()
        try:
            observed = await watch
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            if not await self._probe(cause_of(failure)[1]) or self._location.has_restarted:
                return  # The next round reconnects, or inspects the machine again.
        else:
            await self._inference.observe(observed.run)
        self._start_watch_after(self._pauses.next)

    async def _keep_up(self) -> None:
        """Inspect the device, and read its row as well, because a wake may have been lost."""
        self.wake()
        try:
            await self._interrupt(self._inspection.again())
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            workflow.logger.warning("the device is inspected later: %s", failure)

    async def _follow_assignments(self) -> None:
        """Switch to the wanted status, and follow the newest assignment unless in maintenance.

        The row is read again after each assignment: a status may have been wanted meanwhile.
        """
        while True:
            found = await self._inference.find()
            await self._journal.stop_if_behind(found.sequence)
            if found.status is not None:
                await self._steps.follow(found.status, found.revision)
            assignment = self._inference.due
            if assignment is None or self._steps.status is not DeviceStatus.ACTIVE:
                break
            self._stop_watch()
            if not await self._follow(assignment):
                return
            if self._steps.status is not DeviceStatus.ACTIVE:
                self._pauses.end()
                return
            if self._inbox.holds(Reboot):
                self.wake()  # What is due is followed after the restart.
                break
        if not self._is_watched:
            self._start_watch()

    async def _follow(self, assignment: DeviceAssignment) -> bool:
        """Follow an assignment, until there is a newer one. False: a removal has interrupted it.

        Maintenance and a restart come first as well, unless the device is being switched. The
        record of what it came to is awaited in any case: the lifecycle would not write it again.
        """

        def is_held_back() -> bool:
            return self._inference.is_switching or self._inference.is_recording

        def has_messages() -> bool:
            is_to_restart = self._inbox.holds(Reboot) and not is_held_back()
            return is_to_restart or self._inbox.holds(Wake)

        async def read() -> None:
            self._inbox.pick(Wake)
            found = await self._inference.find()
            waits = found.status is DeviceStatus.MAINTENANCE or self._inbox.holds(Reboot)
            is_newer = self._inference.is_newer_than(assignment)
            if (waits and not is_held_back()) or (is_newer and not self._inference.is_recording):
                raise Interrupted

        work = while_handling(self._inference.follow(assignment), has_messages, read)
        try:
            return await self._interrupt(work)
        except Interrupted:
            return True

    async def _probe(self, symptom: str) -> bool:
        """Probe the device, which becomes offline if it is unreachable. symptom: the failure."""
        try:
            await self._connection.probe()
        except EFFECT_FAILED as unreachable:
            raise_if_violated(unreachable)
            await self._outage.begin(unreachable, symptom)
            return False
        return True

    async def _reconnect(self) -> None:
        """Reconnect to the device until it is removed."""
        self._outage.begin_tries(self._inbox)
        while self._removal is None:
            try:
                if await self._interrupt(self._outage.reconnect(self._inbox)):
                    return
            except Interrupted:
                await self._outage.repeat_tries(self._inbox)
            except EFFECT_FAILED as again:
                raise_if_violated(again)
                await self._outage.wait_after(again, partial(self._inbox.holds, Removal, Wake))
                await self._outage.repeat_tries(self._inbox)
            await self._journal.continue_when_long()

    async def _online(self) -> bool:
        """Inspect a device that has restarted, then resume the status. False: it is offline."""
        if self._location.has_restarted:
            try:
                if not await self._interrupt(self._inspection.again()):
                    return False
            except EFFECT_FAILED as failure:
                raise_if_violated(failure)
                unknown = cause_of(failure)[1]
                if not await self._probe(unknown):
                    return False
                self._location.inspected_boot_id = self._location.boot_id
                event = Event(type=DeviceEvent.NOT_INSPECTED, message=unknown)
                await self._steps.record_event(event)
        if self._steps.status is DeviceStatus.OFFLINE:
            await self._outage.end()
        return True

    async def _remove(self) -> None:
        """End the inference, open the logins again, and archive the device."""
        is_offline = await self._connection.is_gone(
            is_offline=self._steps.status is DeviceStatus.OFFLINE
        )
        was_reached = bool(self._location.boot_id or self._request.resumed_from)
        self._stop_watch()
        if self._steps.status is not DeviceStatus.REMOVING:
            self._steps.status = DeviceStatus.REMOVING
            removing = Event(type=DeviceEvent.REMOVING, message="its inference is being ended")
            await self._steps.write(removing, changes=DeviceChanges(removal=self._removal))
        await self._inference.discard_specs()
        if was_reached and self._location.is_known:
            await self._clear(is_offline=is_offline)
            await self._connection.restore_logins(gone=is_offline)
        self._steps.status = DeviceStatus.ARCHIVED
        await self._write(DeviceEvent.ARCHIVED, "removed")

    async def _clear(self, *, is_offline: bool) -> None:
        """End the inference, or say that nobody could: the device may run it for ever."""
        why = "the device cannot be reached"
        try:
            if not is_offline:
                cleared = await clear_device(ClearDevice(node=self._location.address()))
                if cleared.lost_files:
                    words = f"{cleared.lost_files} files of its output were on no datastore yet"
                    lost = Event(type=DeviceEvent.OUTPUT_LOST, message=words)
                    await self._steps.record_event(lost)
                return
        except EFFECT_FAILED as failure:
            why = cause_of(failure)[1]
        words = f"its inference may still run there: {why}"
        await self._steps.record_event(Event(type=DeviceEvent.INFERENCE_LEFT, message=words))

    # ── messages: handlers put, the loop takes ──────────────────────────────────────────────

    @workflow.signal(description="Read what is wanted of the device, and what it has announced.")
    def wake(self) -> None:
        if not self._inbox.holds(Wake):
            self._inbox.put(Wake())

    @workflow.signal(description="Watch the device again: the process that did so may be dead.")
    def watch_lost(self, lost: WatchLost) -> None:
        if not self._inbox.holds(WatchLost):
            self._inbox.put(lost)

    @workflow.signal(description="Inspect the device now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):
            self._inbox.put(Refresh())

    @workflow.signal(description="Restart the machine; its inference starts again with it.")
    def reboot(self) -> None:
        if not self._inbox.holds(Reboot):
            self._inbox.put(Reboot())

    @workflow.signal(description="Remove the device: its inference ends.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.query(description="Status, reason, and what it runs.")
    def status(self) -> DeviceReport:
        return self._report()

    async def _handle(self, message: Contract) -> None:
        if isinstance(message, Wake):
            await self._follow_assignments()
        elif isinstance(message, Refresh):
            await self._keep_up()
        elif isinstance(message, Reboot):
            await self._reboot()
        elif isinstance(message, WatchLost):
            self._watch_again(message)
        elif isinstance(message, Removal):
            self._removal = message

    def _watch_again(self, lost: WatchLost) -> None:
        """Start another watch in place of one that may be lost, if it is of this site's queue."""
        command = WatchDevice(node=self._location.address(), known=self._inference.run)
        if self._watch is not None and lost.queue == watch_device.queue_of(command):
            self._stop_watch()
            self._start_watch()

    async def _reboot(self) -> None:
        await self._steps.record_event(
            Event(type=DeviceEvent.REBOOTING, message="a person restarts it")
        )
        try:
            await self._interrupt(self._connection.reboot())
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            refused = Event(type=DeviceEvent.REBOOT_REFUSED, message=cause_of(failure)[1])
            await self._steps.record_event(refused)

    def _is_removed(self) -> bool:
        """Whether the device is to be removed; takes a removal ahead of other messages."""
        if self._removal is None:
            self._removal = self._inbox.pick(Removal)
        return self._removal is not None

    async def _interrupt(self, work: Coroutine[Any, Any, object]) -> bool:
        """Await `work`. False: a removal has cancelled it. Raises: the failure of the work."""
        try:
            await interruptible(work, when=self._is_removed)
        except Interrupted:
            if self._removal is None:  # It is the work's own.
                raise
            return False
        return True

    # ── failures ────────────────────────────────────────────────────────────────────────────

    async def _fail(self, failure: BaseException) -> None:
        """Record the failure, and wait until the machine is announced again or removed."""
        kind, message = cause_of(failure)
        if kind == PROTOCOL_VIOLATION:
            await self._fail_for(message)
            return
        self._steps.status = DeviceStatus.FAILED
        cause = {"cause": shown_cause(kind)}
        event = Event(type=DeviceEvent.FAILED, message=message, details=cause)
        await self._steps.write(event, reason=message)
        await self._rest_failed()

    async def _fail_for(self, violation: str) -> None:
        """Fail a device that has broken the agent's protocol, until it is announced anew."""
        self._stop_watch()
        self._steps.status = DeviceStatus.FAILED
        await self._steps.write(
            Event(type=DeviceEvent.PROTOCOL_VIOLATED, message=violation), reason=violation
        )
        self._inbox.pick(Wake)
        await self._rest_failed()

    async def _rest_failed(self) -> None:
        """Wait until the machine is announced, or a person removes the device."""
        while self._removal is None:
            await self._journal.continue_when_long()
            arrival = await self._inbox.wait(FAILED_INTERVAL)
            if isinstance(arrival, Removal):
                self._removal = arrival
            elif isinstance(arrival, Wake):
                self._inbox.put(arrival)  # The connection reads the announcement.
                return

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    def _start_watch(self) -> None:
        command = WatchDevice(
            node=self._location.address(),
            boot_id=self._location.boot_id,
            known=self._inference.run,
        )
        self._watch, self._watch_at = watch_device.start(command, summary="watch"), None
        self._pauses.begin()

    def _start_watch_after(self, pause: timedelta) -> None:
        if pause:
            self._watch_at = workflow.now() + pause
        else:
            self._start_watch()

    def _stop_watch(self) -> None:
        self._watch_at = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    @property
    def _is_watched(self) -> bool:
        """Whether the device is watched, or will be after a pause."""
        return self._watch is not None or self._watch_at is not None

    @property
    def _watch_has_ended(self) -> bool:
        return self._watch is not None and self._watch.done()

    def _requirements(self, hardware: Hardware) -> tuple[Requirement, ...]:
        return requirements_of(hardware)

    async def _ignore_outage(self, reason: str, is_unserved: bool) -> None:
        """Nothing else of the platform depends on the device, whose inference goes on."""

    async def _ignore_return(self) -> None:
        """The assignments of a device that is back are read when it serves again."""

    async def _write(self, kind: DeviceEvent, message: str) -> None:
        await self._steps.write(Event(type=kind, message=message))

    def _next_run(self) -> DeviceRequest | None:
        """The request of the next workflow run, with a watch of its own; None: messages wait."""
        needs_wake = self._steps.status not in _ONBOARDED
        if self._inbox.holds_others_than(*_REPEATED) or (needs_wake and self._inbox.holds(Wake)):
            return None
        self._stop_watch()
        progress = DeviceProgress(
            status=self._steps.status,
            **self._location.progress(),
            sequence=self._journal.sequence,
            resume_status=self._steps.resume_status,
            reason=self._journal.reason,
            removal=self._removal,
            followed=self._inference.followed,
            run=self._inference.run,
        )
        return self._request.model_copy(update={"resumed_from": progress})

    def _report(self) -> DeviceReport:
        return DeviceReport(
            device_id=self._request.device_id,
            status=self._steps.status,
            status_reason=self._journal.reason,
            run=self._inference.run,
        )
