"""The lifecycle of a node."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.contracts.base import Contract
from workflows.contracts.errors import PROTOCOL_VIOLATION
from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.lifecycles import NodeChanges, Refresh, Wake
from workflows.contracts.nodes import (
    NodeNotice,
    NodeReport,
    NodeRequest,
    ProtocolViolation,
    Reboot,
    WatchEnded,
)
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType
from workflows.effects.nodes import NotifyJobs, WatchNode, watch_node
from workflows.nodes.connection import (
    NodeConnection,
    ProtocolViolatedError,
    loss_type,
    raise_if_violated,
)
from workflows.nodes.inspection import Inspection
from workflows.nodes.leased_machine import LeasedMachine, LeaseEndingError, MachineGoneError
from workflows.nodes.location import NodeLocation, refusal
from workflows.nodes.notices import notice_of, reason_to_reschedule
from workflows.nodes.preparation import prepared
from workflows.nodes.relocation import Relocation
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.wanted import WantedStatus
from workflows.primitives.failures import EFFECT_FAILED, UNSERVED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import (
    Interrupted,
    interruptible,
    wait_until,
    while_handling,
)
from workflows.rules.nodes.onboarding import (
    describe_loss,
    describe_preparation,
    first_status_of,
    shown_cause,
)

REFUSED_KEY_INTERVAL = timedelta(seconds=60)
LAST_REFUSED_KEY_INTERVAL = timedelta(minutes=10)
"""Between two tries of a node that shows another key: at first, and the longest."""
FAILED_INTERVAL = timedelta(hours=6)
TIDY_INTERVAL = timedelta(hours=1)
_ONBOARDED = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE, NodeStatus.REMOVING)
URGENT = (Removal, LeaseEnding, MachineLost, ProtocolViolation)
"""The messages that interrupt other work."""
_REPEATED = (Wake, Refresh, LeaseEnding, MachineReady, ProtocolViolation)
"""The messages that the next workflow run can miss: it reads the row and ends orphaned runs when it
resumes, its lease repeats a planned end and is polled until it is ready, and a job tries again."""


@workflow.defn(name="NodeLifecycle")
class NodeLifecycle:
    """The lifecycle of one node, from its addition to its removal.

    connecting → inspecting → preparing → maintenance ⇄ active · offline · removing → archived;
    failed until the machine announces itself again.
    """

    @workflow.init
    def __init__(self, request: NodeRequest) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self._journal = Journal(
            request.node_id,
            request.account_id,
            resumed_from.sequence if resumed_from else request.sequence,
            resumed_from.reason if resumed_from else None,
        )
        self._status = resumed_from.status if resumed_from else NodeStatus.NEW
        self._resume_status = (
            resumed_from.resume_status
            if resumed_from
            else first_status_of(request.services, is_leased=request.machine is not None)
        )
        self._location = NodeLocation(request)
        self._connection = NodeConnection(request, self._location, self._record_event)
        self._inspection = Inspection(request, self._location, self._record_changes)
        self._relocation = Relocation(self._location, self._connection, self._record_changes)
        self._running_jobs = RunningJobs(request, self._location, self._journal, self._record_event)
        self._machine = LeasedMachine(request, self._location, self._journal, self._record_event)
        self._inbox = Inbox()
        self._wanted = WantedStatus(self._journal, self._inbox, self._record_changes)
        self._journal.next_run = self._next_run
        if resumed_from and resumed_from.lost:
            self._inbox.put(resumed_from.lost)
        removal = resumed_from.removal if resumed_from else None
        self._removal = removal if removal and removal.force else None
        if removal and not removal.force:  # Jobs may be there by now.
            self._inbox.put(removal)
        self._ended_by = resumed_from.ended_by if resumed_from else None
        """Why the node removes itself; None: it does not."""
        self._withheld = self._journal.reason if self._status is NodeStatus.MAINTENANCE else None
        self._watch: workflow.ActivityHandle[WatchEnded] | None = None
        self._tidy_at = resumed_from.tidy_at if resumed_from else None

    @workflow.run
    async def run(self, request: NodeRequest) -> NodeReport:
        if self._status is NodeStatus.FAILED:
            if request.resumed_from and not self._machine.is_claimed:
                await self._take_jobs_off(self._journal.reason or "")
            await self._rest_failed()
        if self._machine.releasing is not None and self._removal is None:
            await self._resume_release(self._machine.releasing)
        if self._status not in _ONBOARDED:
            await self._onboard()
        while self._removal is None:
            try:
                await self._serve()
            except (LeaseEndingError, MachineGoneError) as end:
                await self._let_machine_go(str(end))
                await self._onboard()
            except ProtocolViolatedError as violation:
                await self._fail_for(str(violation))
                await self._onboard()
        await self._drain()
        await self._archive()
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _onboard(self) -> None:
        """Connect, inspect and prepare; after a failure wait until the machine is announced."""
        while self._removal is None:
            try:
                for step in (self._connect, self._inspect, self._prepare):
                    await interruptible(step(), when=self._is_interrupted)
            except Interrupted:
                if self._removal is None:
                    await self._fail(self._machine.loss())
            except EFFECT_FAILED as failure:
                await self._fail(failure)
            else:
                return

    async def _connect(self) -> None:
        """Wait for the machine, and connect to it; its host key proves that it is the right one."""
        self._status = NodeStatus.CONNECTING
        await self._write(Event(type=NodeEvent.CONNECTING, message="waits for the machine"))
        await self._machine.acquire(self._inbox)
        await self._connection.await_announcement(self._inbox)
        there = self._location.address()
        found = Event(type=NodeEvent.FOUND, message=f"at {there.host}:{there.port}")
        await self._write(found, changes=self._location.changes())
        await self._connection.connect(self._inbox, self._show_cause)

    async def _show_cause(self, kind: str, message: str) -> None:
        cause = {"cause": shown_cause(kind)}
        event = Event(type=NodeEvent.NOT_REACHED, message=message, details=cause)
        await self._write(event, reason=message)

    async def _inspect(self) -> None:
        """Inspect the machine, and compare it with the region's requirements."""
        self._status = NodeStatus.INSPECTING
        connected = Event(type=NodeEvent.CONNECTED, message="its host key is the expected one")
        await self._write(connected, changes=self._location.changes())
        if missed := await self._inspection.first(self._machine.lacking):
            raise refusal(self._request, missed)

    async def _prepare(self) -> None:
        """Prepare the machine, which restarts first if it needs to."""
        self._status = NodeStatus.PREPARING
        await self._write(Event(type=NodeEvent.PREPARING, message="is being prepared"))
        if self._inspection.asks_for_a_restart and self._request.exclusive:
            await self._connection.restart()
        preparation = await prepared(self._request, self._location)
        self._status = self._resume_status
        self._machine.serves()
        words = describe_preparation(preparation, exclusive=self._request.exclusive)
        await self._write(
            Event(type=NodeEvent.PREPARED, message=words),
            changes=NodeChanges(preparation=preparation),
        )

    async def _serve(self) -> None:
        """Watch the node and handle messages, until its watch ends or the node is removed."""
        if self._status is NodeStatus.OFFLINE:
            await self._reconnect()
        if self._removal is not None or not await self._online():
            return
        command = WatchNode(node=self._location.address(), boot_id=self._location.boot_id)
        self._watch = watch_node.start(command, summary="watch")
        watch = self._watch
        self.wake()  # What is wanted may have changed while nobody looked.
        while self._removal is None and not watch.done():
            tidy_at = self._tidy_at = self._tidy_at or workflow.now() + (
                self._running_jobs.end_interval or TIDY_INTERVAL
            )
            left = max(timedelta(0), tidy_at - workflow.now())
            await wait_until(lambda: len(self._inbox) > 0 or watch.done(), left, "messages")
            if workflow.now() >= tidy_at:
                self._tidy_at = None
                await self._tidy()
            while self._removal is None and (message := self._inbox.take()) is not None:
                await self._handle(message)
            await self._journal.continue_when_long()
        if self._removal is None:
            await self._watch_lost(watch)

    async def _watch_lost(self, watch: "workflow.ActivityHandle[WatchEnded]") -> None:
        """Probe the node after a failed watch, because the failure alone does not mean offline."""
        try:
            await watch
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            await self._probe(cause_of(failure)[1])

    async def _probe(self, symptom: str) -> bool:
        """Probe the node, which becomes offline if it is unreachable.

        symptom: the failure before. False: the node is offline, or a message interrupted the probe.
        """
        try:
            return await self._unless_urgent(self._connection.probe())
        except EFFECT_FAILED as unreachable:
            await self._offline(unreachable, symptom)
            return False

    async def _offline(self, failure: BaseException, symptom: str) -> None:
        """Record that the node is offline and notify its jobs; their runs are not ended."""
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message) or symptom
        if kind == UNSERVED:
            reason = f"no worker serves the site of {self._request.region_id} ({message})"
        self._status = NodeStatus.OFFLINE
        await self._write(Event(type=loss_type(failure), message=reason), reason=reason)
        await self._running_jobs.notify(NodeNotice.UNREACHABLE, reason)
        if kind == UNSERVED:
            await self._connection.refresh_region()

    async def _reconnect(self) -> None:
        """Reconnect to the node, at its address or at an announced one, until it is removed.

        Announcements are verified beside the tries at the node's own address, which they therefore
        never hold up.
        """
        self._relocation.start(self._inbox)
        pause = REFUSED_KEY_INTERVAL
        while self._removal is None:
            reconnection = while_handling(
                self._connection.reconnect(),
                partial(self._inbox.holds, Wake),
                partial(self._relocation.follow, self._inbox),
            )
            try:
                if await self._unless_urgent(reconnection):
                    return
            except EFFECT_FAILED as again:
                await self._refused_again(again, pause)
                pause = min(2 * pause, LAST_REFUSED_KEY_INTERVAL)
            await self._journal.continue_when_long()

    async def _online(self) -> bool:
        """End orphaned runs, then resume the status. False: offline, or interrupted."""
        try:
            if not await self._unless_urgent(self._end_orphans()):
                return False
        except EFFECT_FAILED as failure:
            left = cause_of(failure)[1]
            if not await self._probe(left):
                return False
            # Orphaned runs that could not be ended do not make the node offline.
            await self._record_event(Event(type=NodeEvent.ORPHANED_RUNS_LEFT, message=left))
        if self._location.has_restarted and not await self._is_inspected_again():
            return False
        if self._status is NodeStatus.OFFLINE:
            self._status = self._resume_status
            back = Event(type=NodeEvent.BACK, message="can be reached again")
            await self._write(back, reason=self._withheld)
            await self._running_jobs.notify(NodeNotice.REACHABLE)
        return True

    async def _is_inspected_again(self) -> bool:
        """Inspect a restarted node, which takes no jobs if that fails.

        False: the node is offline, or a message interrupted the inspection.
        """
        try:
            return await self._unless_urgent(self._inspect_again())
        except EFFECT_FAILED as failure:
            unknown = cause_of(failure)[1]
        if not await self._probe(unknown):
            return False
        await self._record_event(Event(type=NodeEvent.NOT_INSPECTED, message=unknown))
        await self._withhold(f"cannot be inspected: {unknown}")
        return True

    async def _drain(self) -> None:
        """Take no new jobs, wait until the running ones have left, then let the machine go."""
        is_offline = await self._connection.is_gone(self._status)
        never_used = (NodeStatus.NEW, NodeStatus.CONNECTING, NodeStatus.FAILED)
        if self._machine.is_claimed or self._status not in never_used:
            await self._close(self._removal)
        # Jobs are not notified of a node that is being removed, so they would hold it for long.
        await self._running_jobs.withdraw(self._ended_by or "the node is being removed")
        leaves = reason_to_reschedule(self._removal, self._machine, is_offline=is_offline)
        planned = self._ended_by or self._machine.ending or leaves
        await self._see_jobs_off(partial(self._notice, planned, is_offline))
        self._stop_watch()
        if self._machine.is_claimed:
            await self._give_machine_back(self._ended_by or "its node is being removed")
        elif self._location.boot_id or self._request.resumed_from:
            await self._connection.restore_logins(gone=is_offline)

    async def _see_jobs_off(self, notice: Callable[[], NotifyJobs]) -> None:
        """Notify the jobs until they have left; not again once the machine is being released.

        While it is, nobody knows whether their runs have ended.
        """
        if self._machine.releasing is None:
            await self._running_jobs.drain(notice, self._is_lost)
        self._is_lost()  # A loss that stayed in the inbox would keep this run from continuing.

    async def _give_machine_back(self, reason: str) -> None:
        """Release the lease, and notify the jobs that have not left before the machine's end."""
        await self._machine.release(reason)
        gone = self._running_jobs.notice(NodeNotice.MACHINE_GONE, reason)
        await self._running_jobs.drain(lambda: gone, lambda: True)

    def _notice(self, planned: str, is_offline: bool) -> NotifyJobs:
        """What the jobs of a node that ends are notified of, by its state now."""
        self._is_lost()
        return notice_of(self._request, self._machine, planned, is_offline=is_offline)

    def _is_lost(self) -> bool:
        return self._machine.is_lost(self._inbox)

    async def _archive(self) -> None:
        self._status = NodeStatus.ARCHIVED
        archived = Event(type=NodeEvent.ARCHIVED, message=self._ended_by or "removed")
        await self._write(archived, reason=self._ended_by)

    # ── messages: handlers put, the loop takes ──────────────────────────────────────────────

    @workflow.signal(description="Read what is wanted of the node, and what it has announced.")
    def wake(self) -> None:
        if not self._inbox.holds(Wake):
            self._inbox.put(Wake())

    @workflow.signal(description="Look for orphaned runs now.")
    def refresh(self, refresh: Refresh) -> None:
        if not self._inbox.holds(Refresh):
            self._inbox.put(refresh)

    @workflow.signal(description="Restart the machine; with jobs on it only when forced.")
    def reboot(self, asked: Reboot | None = None) -> None:
        waiting = self._inbox.pick(Reboot)  # Two requests restart the machine once.
        self._inbox.put(Reboot(force=any(one.force for one in (asked, waiting) if one)))

    @workflow.signal(description="Remove the node; with jobs on it only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="The node's leased machine is ready.")
    def machine_ready(self, ready: MachineReady) -> None:
        self._inbox.put(ready)

    @workflow.signal(description="The lease of the node's machine ends as planned: leave it.")
    def lease_ending(self, ending: LeaseEnding) -> None:
        self._inbox.put(ending)

    @workflow.signal(description="The node's lease has no machine, or has lost it.")
    def machine_lost(self, lost: MachineLost) -> None:
        self._inbox.put(lost)

    @workflow.signal(description="An effect of a job has met a protocol violation.")
    def protocol_violated(self, violation: ProtocolViolation) -> None:
        if not self._inbox.holds(ProtocolViolation):
            self._inbox.put(violation)

    @workflow.query(description="Status and reason.")
    def status(self) -> NodeReport:
        return self._report()

    async def _handle(self, message: Contract) -> None:
        if isinstance(message, Wake):
            await self._follow_wanted_status()
        elif isinstance(message, Refresh):
            await self._tidy()
        elif isinstance(message, Reboot):
            await self._reboot(message)
        elif isinstance(message, Removal):
            await self._consider(message)
        elif isinstance(message, LeaseEnding) and self._machine.is_to_end(message):
            await self._leave_before(message)
        elif isinstance(message, MachineLost) and self._machine.concerns(message):
            raise self._machine.loss()
        elif isinstance(message, ProtocolViolation) and self._location.is_at(message.minion_id):
            raise ProtocolViolatedError(message.reason)

    async def _leave_before(self, ending: LeaseEnding) -> None:
        """Leave the machine before the end of its lease; the region replaces its storage node.

        Raises: LeaseEndingError, unless the region removes the node when another one serves.
        """
        if "storage" not in self._request.services:
            raise LeaseEndingError(ending.reason)
        message = f"{ending.reason}; its region is asked for another storage node"
        await self._record_event(Event(type=NodeEvent.MACHINE_ENDING, message=message))
        await self._connection.ask_for_replacement()

    async def _follow_wanted_status(self) -> None:
        """Switch to the status that a person wants, if one was requested since the last look."""
        wanted = await self._wanted.find()
        if wanted.status is None:
            return
        seen = NodeChanges(seen_revision=wanted.revision)
        if wanted.status is self._status:
            await self._write(changes=seen, reason=self._journal.reason)
            return
        self._status = self._resume_status = wanted.status
        self._withheld = None
        takes_jobs = wanted.status is NodeStatus.ACTIVE
        message = "takes jobs" if takes_jobs else "takes no new jobs"
        event = Event(type=NodeEvent(f"node.{wanted.status}"), message=message)
        await self._write(event, changes=seen)

    async def _withhold(self, reason: str) -> None:
        """Take no jobs until a person has read the reason and activates the node."""
        if self._resume_status is NodeStatus.ACTIVE:
            self._resume_status, self._withheld = NodeStatus.MAINTENANCE, reason
            if self._status is NodeStatus.ACTIVE:
                self._status = NodeStatus.MAINTENANCE
            await self._write(Event(type=NodeEvent.MAINTENANCE, message=reason), reason=reason)

    async def _consider(self, removal: Removal) -> None:
        """Accept or refuse a removal: with jobs on the node it needs force.

        The API checks that as well, but a job may have come since.
        """
        before = self._status
        jobs = await self._running_jobs.users()
        if before is NodeStatus.ACTIVE and not jobs and not removal.force:
            await self._close(removal)
            # A job may have come before the node was closed.
            jobs = await self._running_jobs.users()
        if jobs and not removal.force:
            self._status = before
            message = f"asked to be removed, runs {', '.join(jobs)}: not removed (force ends them)"
            await self._record_event(Event(type=NodeEvent.REMOVAL_REFUSED, message=message))
            return
        self._removal = removal

    async def _close(self, removal: Removal | None) -> None:
        """Record that the node is being removed, so that nothing more is placed on it."""
        if self._status is not NodeStatus.REMOVING:
            self._status = NodeStatus.REMOVING
            removing = Event(
                type=NodeEvent.REMOVING, message=self._ended_by or "takes no more jobs"
            )
            changes = NodeChanges(removal=removal)
            await self._write(removing, changes=changes, reason=self._ended_by)

    async def _reboot(self, asked: Reboot) -> None:
        """Restart the machine: with jobs on the node that needs force.

        The API checks that as well, but a job may have come since.
        """
        if (jobs := (await self._running_jobs.held()).job_ids) and not asked.force:
            message = f"asked to restart, runs {', '.join(jobs)}: not restarted (force ends them)"
            await self._record_event(Event(type=NodeEvent.REBOOT_REFUSED, message=message))
            return
        await self._record_event(Event(type=NodeEvent.REBOOTING, message="a person restarts it"))
        try:
            await self._unless_urgent(self._connection.reboot())
        except EFFECT_FAILED as failure:
            await self._record_event(
                Event(type=NodeEvent.REBOOT_REFUSED, message=cause_of(failure)[1])
            )

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    async def _refused_again(self, failure: BaseException, pause: timedelta) -> None:
        """Record why the reconnection failed, and wait before the next; runs are not touched."""
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message)
        if self._journal.reason != reason:
            event = Event(type=loss_type(failure), message=reason, details={"cause": kind})
            await self._write(event, reason=reason)
        news = partial(self._inbox.holds, *URGENT, Wake)
        await wait_until(news, pause, "before the next try")

    async def _end_orphans(self) -> None:
        """End orphaned runs; after some tries to end one of them, the node takes no more jobs."""
        self._tidy_at = None  # From here the interval to the next look begins anew.
        if (given_up := await self._running_jobs.end_orphans()) is not None:
            await self._withhold(given_up)

    async def _tidy(self) -> None:
        """End orphaned runs beside the watch, and inspect the node again if no job runs there.

        The row is read as well, because a wake may have been lost.
        """
        self.wake()
        try:
            await self._unless_urgent(self._end_orphans())
        except EFFECT_FAILED as failure:
            left = Event(type=NodeEvent.ORPHANED_RUNS_LEFT, message=cause_of(failure)[1])
            await self._record_event(left)
            return
        try:
            if not (await self._running_jobs.held()).run_ids:
                await self._unless_urgent(self._inspect_again())
        except EFFECT_FAILED as failure:
            workflow.logger.warning("the node is inspected later: %s", failure)

    async def _inspect_again(self) -> None:
        if missed := await self._inspection.again():
            await self._withhold(missed)

    async def _fail(self, failure: BaseException) -> None:
        """Record the failure, and wait until the machine is announced again or removed.

        A node with a leased machine releases that machine instead.
        """
        if self._removal is not None:
            return
        kind, message = cause_of(failure)
        if kind == PROTOCOL_VIOLATION:
            await self._fail_for(message)
            return
        if self._machine.is_claimed:
            await self._let_machine_go(message)
            return
        self._status = NodeStatus.FAILED
        cause = {"cause": shown_cause(kind)}
        event = Event(type=NodeEvent.FAILED, message=message, details=cause)
        await self._write(event, reason=message)
        await self._rest_failed()

    async def _fail_for(self, violation: str) -> None:
        """Fail the node, and take its jobs off; a leased machine is released as well.

        An own machine is believed again when it is announced anew, and a person activates it.
        """
        self._stop_watch()
        event = Event(type=NodeEvent.PROTOCOL_VIOLATED, message=violation)
        if self._machine.is_claimed:
            self._machine.lose_for(violation)
            await self._record_event(event)
            await self._let_machine_go(violation)
            return
        self._status, self._resume_status = NodeStatus.FAILED, NodeStatus.MAINTENANCE
        passed = await self._wanted.pass_over()  # Whoever wanted jobs there did not know of this.
        await self._write(event, changes=passed, reason=violation)
        self._inbox.pick(Wake)
        await self._running_jobs.withdraw(violation)
        await self._take_jobs_off(violation)
        await self._rest_failed()

    async def _take_jobs_off(self, violation: str) -> None:
        """Take the jobs off an own machine, unless the node is to be removed meanwhile."""
        with suppress(Interrupted):
            taken = self._running_jobs.take_off(violation, workflow.now())
            await interruptible(taken, when=self._has_removal)

    async def _rest_failed(self) -> None:
        """Wait until the machine is announced, or a person activates or removes the node."""
        if self._machine.is_claimed:
            await self._change_machine(self._journal.reason or "", None)
            return
        while self._removal is None:
            await self._journal.continue_when_long()
            arrival = await self._inbox.wait(FAILED_INTERVAL)
            if isinstance(arrival, Removal):
                self._removal = arrival
            elif isinstance(arrival, Wake):
                self._inbox.put(arrival)  # The connection reads the announcement.
                return

    async def _let_machine_go(self, reason: str) -> None:
        """Let the leased machine go, and wait for the next one: after the loss of the machine or a
        failure, or before the end of its lease.

        An ephemeral node is removed with its machine. A permanent node that was never in use fails,
        and one that was in use gets another machine, after a loss with a pause.
        """
        if self._machine.lost is not None:
            self._stop_watch()
        if self._request.type is NodeType.EPHEMERAL:
            self._ended_by = reason
            self._removal = Removal(force=True, requested_by="the end of its machine")
            return
        pause = self._machine.pause()
        if self._machine.lost is None and self._machine.ending is not None:
            self._status, kind = NodeStatus.MAINTENANCE, NodeEvent.MACHINE_ENDING
        elif pause is None:
            self._status, kind = NodeStatus.FAILED, NodeEvent.FAILED
        else:
            self._status, kind = NodeStatus.OFFLINE, NodeEvent.MACHINE_LOST
        await self._write(Event(type=kind, message=reason), reason=reason)
        await self._running_jobs.withdraw(reason)
        await self._change_machine(reason, pause)

    async def _resume_release(self, reason: str) -> None:
        """Go on with the release that an earlier workflow run began, and get another machine."""
        if self._status not in (NodeStatus.MAINTENANCE, NodeStatus.OFFLINE):
            return
        is_planned = self._status is NodeStatus.MAINTENANCE
        pause = timedelta(0) if is_planned else self._machine.present_pause()
        await self._change_machine(reason, pause)
        await self._onboard()

    async def _change_machine(self, reason: str, pause: timedelta | None) -> None:
        with suppress(Interrupted):
            await interruptible(self._next_machine(reason, pause), when=self._has_removal)

    async def _next_machine(self, reason: str, pause: timedelta | None) -> None:
        """See the jobs off the machine, release it, and wait until another one may be claimed."""
        await self._see_jobs_off(partial(self._notice, reason, is_offline=False))
        self._stop_watch()
        await self._give_machine_back(reason)
        await self._machine.wait_for_next(pause, self._wanted.activation)

    def _has_removal(self) -> bool:
        """Whether the node is to be removed; takes a removal ahead of other messages."""
        if self._removal is None:
            self._removal = self._inbox.pick(Removal)
        return self._removal is not None

    async def _unless_urgent(self, work: Coroutine[Any, Any, None]) -> bool:
        """Await `work` on the node. False: an urgent message has cancelled it and was handled.

        Raises: ProtocolViolatedError; the failure of the work.
        """
        try:
            await interruptible(work, when=partial(self._inbox.holds, *URGENT))
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            raise
        except Interrupted:
            message = self._inbox.pick(*URGENT)
            if message is not None:
                await self._handle(message)
            return False
        return True

    def _is_interrupted(self) -> bool:
        """Whether the node is removed or its machine lost; takes these messages ahead of others."""
        return self._has_removal() or self._machine.is_lost(self._inbox)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def _next_run(self) -> NodeRequest | None:
        """The request of the next workflow run, with a watch of its own; None: messages wait."""
        needs_wake = self._status not in _ONBOARDED  # The others read the row when they resume.
        if self._inbox.holds_others_than(*_REPEATED) or (needs_wake and self._inbox.holds(Wake)):
            return None
        self._stop_watch()
        progress = self._location.progress(
            self._status,
            sequence=self._journal.sequence,
            resume_status=self._resume_status,
            **self._machine.progress(),
            tidy_at=self._tidy_at,
            end_tries=self._running_jobs.end_tries,
            reason=self._journal.reason,
            removal=self._removal and self._removal.model_copy(update={"force": True}),
            ended_by=self._ended_by,
        )
        return self._request.model_copy(update={"resumed_from": progress})

    async def _write(
        self, *events: Event, changes: NodeChanges | None = None, reason: str | None = None
    ) -> None:
        await self._journal.write(self._status, changes or NodeChanges(), *events, reason=reason)
        await self._connection.notify_region(self._status)

    async def _record_changes(self, changes: NodeChanges, events: tuple[Event, ...]) -> None:
        await self._write(*events, changes=changes, reason=self._journal.reason)

    async def _record_event(self, event: Event) -> None:
        await self._record_changes(NodeChanges(), (event,))

    def _report(self) -> NodeReport:
        return NodeReport(
            node_id=self._request.node_id,
            status=self._status,
            status_reason=self._journal.reason,
        )
