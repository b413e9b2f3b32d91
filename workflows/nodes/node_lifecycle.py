"""The lifecycle of a node."""

from contextlib import suppress
from datetime import timedelta
from functools import partial

from temporalio import workflow

from workflows.contracts.base import Contract
from workflows.contracts.errors import PROTOCOL_VIOLATION
from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.lifecycles import NodeChanges, Refresh, Wake
from workflows.contracts.nodes import (
    Hardware,
    IdleWorkloadReported,
    NodeNotice,
    NodeProgress,
    NodeReport,
    NodeRequest,
    ProtocolViolation,
    Reboot,
    Requirement,
)
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus
from workflows.hosts.connection import HostConnection, ProtocolViolatedError, raise_if_violated
from workflows.hosts.inspection import Inspection
from workflows.hosts.location import HostLocation, refusal
from workflows.hosts.outage import Outage
from workflows.hosts.preparation import prepared
from workflows.hosts.relocation import Relocation
from workflows.hosts.watch_pauses import WatchPauses
from workflows.nodes.console import NodeConsole
from workflows.nodes.drain import Drain
from workflows.nodes.idle_workload import IdleWorkload
from workflows.nodes.leased_machine import LeasedMachine, LeaseEndingError, MachineGoneError
from workflows.nodes.machine_change import MachineChange
from workflows.nodes.region import NodeRegion
from workflows.nodes.removal import NodeRemoval
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.nodes.upkeep import Upkeep
from workflows.nodes.urgent import UrgentMessages
from workflows.nodes.wanted import WantedStatus
from workflows.nodes.watch import NodeWatch
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, wait_until
from workflows.rules.nodes.onboarding import describe_preparation, shown_cause
from workflows.rules.nodes.requirements import STORAGE, requirements_of

FAILED_INTERVAL = timedelta(hours=6)
PAUSES = "short-watches-of-a-node-pause"
"""The patch mark of what histories of before do not have."""
_ONBOARDED = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE, NodeStatus.REMOVING)
_REPEATED = (Wake, Refresh, LeaseEnding, MachineReady, ProtocolViolation, IdleWorkloadReported)
"""The messages that the next workflow run can miss: it reads the row and ends orphaned runs when it
resumes, its lease repeats a planned end and is polled until it is ready, a job tries again, and a
new watch reports the idle workload anew."""


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
        self._journal.next_run = self._next_run
        self._inbox = Inbox()
        if resumed_from and resumed_from.lost:
            self._inbox.put(resumed_from.lost)
        region = NodeRegion(request)
        self._region = region
        self._steps = steps = NodeSteps(request, self._journal, region)
        self._location = HostLocation(request)
        self._connection = HostConnection(request, self._location, steps.record_event)
        self._inspection = Inspection(
            request, self._location, steps.record_changes, self._requirements
        )
        self._running_jobs = RunningJobs(request, self._location, self._journal, steps.record_event)
        self._machine = LeasedMachine(request, self._location, self._journal, steps, region)
        self._removal = NodeRemoval(request, steps, self._running_jobs, self._inbox)
        self._urgent = UrgentMessages(self._inbox, self._removal, self._machine, self._location)
        self._wanted = WantedStatus(self._journal, self._inbox, steps, self._running_jobs)
        self._idle_workload = IdleWorkload(request, self._location, steps)
        self._console = NodeConsole(request, self._location, steps)
        self._watch, self._pauses = NodeWatch(self._location), WatchPauses()
        self._drain = Drain(request, self._machine, self._running_jobs, self._watch, self._inbox)
        self._machine_change = MachineChange(
            steps, self._machine, self._drain, self._removal, self._wanted
        )
        relocation = Relocation(self._location, self._connection, steps.record_changes)
        self._outage = Outage(
            steps, self._connection, relocation, self._show_outage, self._show_return
        )
        tidy_at = resumed_from.tidy_at if resumed_from else None
        self._upkeep = Upkeep(steps, self._inspection, self._running_jobs, self._urgent, tidy_at)

    @workflow.run
    async def run(self, request: NodeRequest) -> NodeReport:
        if self._steps.status is NodeStatus.FAILED:
            if request.resumed_from and not self._machine.is_claimed:
                await self._take_jobs_off(self._journal.reason or "")
            await self._rest_failed()
        if self._machine.releasing is not None and not self._removal.is_accepted:
            await self._resume_release(self._machine.releasing)
        if self._steps.status not in _ONBOARDED:
            await self._onboard()
        while not self._removal.is_accepted:
            try:
                await self._serve()
            except (LeaseEndingError, MachineGoneError) as end:
                await self._let_machine_go(str(end))
                await self._onboard()
            except ProtocolViolatedError as violation:
                await self._fail_for(str(violation))
                await self._onboard()
        await self._remove()
        await self._archive()
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _onboard(self) -> None:
        """Connect, inspect and prepare; after a failure wait until the machine is announced."""
        while not self._removal.is_accepted:
            try:
                for step in (self._connect, self._inspect, self._prepare):
                    await interruptible(step(), when=self._urgent.end_onboarding)
            except Interrupted:
                if not self._removal.is_accepted:
                    await self._fail(self._machine.loss())
            except EFFECT_FAILED as failure:
                await self._fail(failure)
            else:
                return

    async def _connect(self) -> None:
        """Wait for the machine, and connect to it; its host key proves that it is the right one."""
        self._steps.status = NodeStatus.CONNECTING
        await self._steps.write(Event(type=NodeEvent.CONNECTING, message="waits for the machine"))
        await self._machine.acquire(self._inbox)
        await self._connection.await_announcement(self._inbox)
        there = self._location.address()
        found = Event(type=NodeEvent.FOUND, message=f"at {there.host}:{there.port}")
        await self._steps.write(found, changes=self._location.changes())
        await self._connection.connect(self._inbox, self._show_cause)

    async def _show_cause(self, kind: str, message: str) -> None:
        cause = {"cause": shown_cause(kind)}
        event = Event(type=NodeEvent.NOT_REACHED, message=message, details=cause)
        await self._steps.write(event, reason=message)

    async def _inspect(self) -> None:
        """Inspect the machine, and compare it with the region's requirements."""
        self._steps.status = NodeStatus.INSPECTING
        connected = Event(type=NodeEvent.CONNECTED, message="its host key is the expected one")
        await self._steps.write(connected, changes=self._location.changes())
        is_probed = self._machine.is_probed
        missed = await self._inspection.first(
            self._machine.lacking, waits=not is_probed, tries_speeds=is_probed
        )
        if missed:
            if is_probed:
                await self._machine.distrust(missed)
            raise refusal(self._request, missed)

    async def _prepare(self) -> None:
        """Prepare the machine, which restarts first if it needs to."""
        self._steps.status = NodeStatus.PREPARING
        await self._steps.write(Event(type=NodeEvent.PREPARING, message="is being prepared"))
        if self._inspection.asks_for_a_restart and self._request.exclusive:
            await self._connection.restart()
        preparation = await prepared(
            self._request, self._location, serves_cache=STORAGE in self._request.services
        )
        self._steps.status = self._steps.resume_status
        self._machine.serves()
        words = describe_preparation(preparation, exclusive=self._request.exclusive)
        await self._steps.write(
            Event(type=NodeEvent.PREPARED, message=words),
            changes=NodeChanges(preparation=preparation),
        )

    async def _serve(self) -> None:
        """Watch the node and handle messages, until its watch ends or the node is removed."""
        if self._steps.status is NodeStatus.OFFLINE:
            await self._reconnect()
        if self._removal.is_accepted or not await self._pause():
            return
        self._pauses.begin()
        if not await self._online():
            self._pauses.end()
            return
        self._watch.start()
        self.wake()  # What is wanted may have changed while nobody looked.
        while not self._removal.is_accepted and not self._watch.has_ended:
            tidy_at = self._upkeep.due_at()
            left = max(timedelta(0), tidy_at - workflow.now())
            await wait_until(lambda: bool(self._inbox) or self._watch.has_ended, left, "messages")
            if workflow.now() >= tidy_at:
                await self._tidy()
            while not self._removal.is_accepted and (message := self._inbox.take()) is not None:
                await self._handle(message)
            await self._journal.continue_when_long()
        if not self._removal.is_accepted:
            await self._watch_lost()

    async def _pause(self) -> bool:
        """Wait as long as the next watch must. False: a message interrupted that."""
        pause = self._pauses.next
        if not pause or not workflow.patched(PAUSES):
            return True
        return await self._urgent.interrupt(workflow.sleep(pause, summary="its watches were short"))

    async def _tidy(self) -> None:
        """Tidy the node, and read its row as well, because a wake may have been lost."""
        self.wake()
        await self._upkeep.tidy()

    async def _watch_lost(self) -> None:
        """Probe the node after a failed watch, because the failure alone does not mean offline."""
        self._pauses.end()
        try:
            await self._watch.end()
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            await self._probe(cause_of(failure)[1])

    async def _probe(self, symptom: str) -> bool:
        """Probe the node, which becomes offline if it is unreachable.

        symptom: the failure before. False: the node is offline, or a message interrupted the probe.
        """
        try:
            return await self._urgent.interrupt(self._connection.probe())
        except EFFECT_FAILED as unreachable:
            await self._outage.begin(unreachable, symptom)
            return False

    async def _reconnect(self) -> None:
        """Reconnect to the node until it is removed."""
        self._outage.begin_tries(self._inbox)
        while not self._removal.is_accepted:
            try:
                tries = self._machine.hold_while(self._outage.reconnect(self._inbox))
                if await self._urgent.interrupt(tries):
                    return
            except EFFECT_FAILED as again:
                await self._outage.wait_after(again, partial(self._urgent.wait_beside, Wake))
                await self._outage.repeat_tries(self._inbox)
            await self._journal.continue_when_long()

    async def _online(self) -> bool:
        """End orphaned runs, then resume the status. False: offline, or interrupted."""
        try:
            if not await self._upkeep.end_orphans():
                return False
        except EFFECT_FAILED as failure:
            left = cause_of(failure)[1]
            if not await self._probe(left):
                return False
            # Orphaned runs that could not be ended do not make the node offline.
            await self._upkeep.leave_orphans(left)
        if self._location.has_restarted and not await self._is_inspected_again():
            return False
        if self._steps.status is NodeStatus.OFFLINE:
            await self._outage.end()
        return True

    async def _is_inspected_again(self) -> bool:
        """Inspect a restarted node, which takes no jobs if that fails.

        False: the node is offline, or a message interrupted the inspection.
        """
        try:
            return await self._upkeep.inspect()
        except EFFECT_FAILED as failure:
            unknown = cause_of(failure)[1]
        if not await self._probe(unknown):
            return False
        await self._steps.record_event(Event(type=NodeEvent.NOT_INSPECTED, message=unknown))
        await self._steps.withhold(f"cannot be inspected: {unknown}")
        return True

    async def _remove(self) -> None:
        """Take no new jobs, wait until the running ones have left, then let the machine go."""
        is_offline = await self._connection.is_gone(
            is_offline=self._steps.status is NodeStatus.OFFLINE
        )
        never_used = (NodeStatus.NEW, NodeStatus.CONNECTING, NodeStatus.FAILED)
        if self._machine.is_claimed or self._steps.status not in never_used:
            await self._removal.close()
        await self._drain.before_removal(self._removal, is_offline=is_offline)
        if self._machine.is_claimed:
            await self._drain.give_machine_back(
                self._removal.ended_by or "its node is being removed"
            )
        elif self._location.boot_id or self._request.resumed_from:
            await self._connection.restore_logins(gone=is_offline)

    async def _archive(self) -> None:
        self._steps.status = NodeStatus.ARCHIVED
        archived = Event(type=NodeEvent.ARCHIVED, message=self._removal.ended_by or "removed")
        await self._steps.write(archived, reason=self._removal.ended_by)

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

    @workflow.signal(description="The node has said what its idle workload has done.")
    def idle_workload_reported(self, report: IdleWorkloadReported) -> None:
        self._inbox.pick(IdleWorkloadReported)  # The last report counts.
        self._inbox.put(report)

    @workflow.query(description="Status and reason.")
    def status(self) -> NodeReport:
        return self._report()

    async def _handle(self, message: Contract) -> None:
        if isinstance(message, Wake):
            wanted = await self._wanted.follow()
            await self._idle_workload.follow(wanted.idle_workload)
            if wanted.has_console:
                await self._console.follow()
        elif isinstance(message, IdleWorkloadReported):
            await self._idle_workload.take(message)
        elif isinstance(message, Refresh):
            await self._tidy()
        elif isinstance(message, Reboot):
            await self._reboot(message)
        else:
            await self._urgent.handle(message)

    async def _reboot(self, asked: Reboot) -> None:
        """Restart the machine: with jobs on the node that needs force.

        The API checks that as well, but a job may have come since.
        """
        if (jobs := (await self._running_jobs.held()).job_ids) and not asked.force:
            message = f"asked to restart, runs {', '.join(jobs)}: not restarted (force ends them)"
            await self._steps.record_event(Event(type=NodeEvent.REBOOT_REFUSED, message=message))
            return
        await self._steps.record_event(
            Event(type=NodeEvent.REBOOTING, message="a person restarts it")
        )
        try:
            await self._urgent.interrupt(self._connection.reboot())
        except EFFECT_FAILED as failure:
            await self._steps.record_event(
                Event(type=NodeEvent.REBOOT_REFUSED, message=cause_of(failure)[1])
            )

    # ── failures, and ends of the machine ───────────────────────────────────────────────────

    async def _fail(self, failure: BaseException) -> None:
        """Record the failure, and wait until the machine is announced again or removed.

        A node with a leased machine releases that machine instead.
        """
        if self._removal.is_accepted:
            return
        kind, message = cause_of(failure)
        if kind == PROTOCOL_VIOLATION:
            await self._fail_for(message)
            return
        if self._machine.is_claimed:
            await self._let_machine_go(message)
            return
        self._steps.status = NodeStatus.FAILED
        cause = {"cause": shown_cause(kind)}
        event = Event(type=NodeEvent.FAILED, message=message, details=cause)
        await self._steps.write(event, reason=message)
        await self._rest_failed()

    async def _fail_for(self, violation: str) -> None:
        """Fail the node, and take its jobs off; a leased machine is released as well.

        An own machine is believed again when it is announced anew, and a person activates it.
        """
        self._watch.stop()
        event = Event(type=NodeEvent.PROTOCOL_VIOLATED, message=violation)
        if self._machine.is_claimed:
            self._machine.lose_for(violation)
            await self._steps.record_event(event)
            await self._let_machine_go(violation)
            return
        self._steps.status, self._steps.resume_status = NodeStatus.FAILED, NodeStatus.MAINTENANCE
        passed = await self._wanted.pass_over()  # Whoever wanted jobs there did not know of this.
        await self._steps.write(event, changes=passed, reason=violation)
        self._inbox.pick(Wake)
        await self._running_jobs.withdraw(violation)
        await self._take_jobs_off(violation)
        await self._rest_failed()

    async def _take_jobs_off(self, violation: str) -> None:
        """Take the jobs off an own machine, unless the node is to be removed meanwhile."""
        with suppress(Interrupted):
            taken = self._running_jobs.take_off(violation, workflow.now())
            await interruptible(taken, when=self._removal.is_asked)

    async def _rest_failed(self) -> None:
        """Wait until the machine is announced, or a person activates or removes the node."""
        if self._machine.is_claimed:
            await self._machine_change.make_when_wanted()
            return
        while not self._removal.is_accepted:
            await self._journal.continue_when_long()
            arrival = await self._inbox.wait(FAILED_INTERVAL)
            if isinstance(arrival, Removal):
                self._removal.accepted = arrival
            elif isinstance(arrival, Wake):
                self._inbox.put(arrival)  # The connection reads the announcement.
                self._pauses = WatchPauses()  # What it was failed for, it has waited for.
                return

    async def _let_machine_go(self, reason: str) -> None:
        """Change the machine of a permanent node; an ephemeral one is removed with its machine."""
        if self._machine.lost is not None:
            self._watch.stop()
        if not self._removal.end_with_machine(reason):
            await self._machine_change.make(reason)

    async def _resume_release(self, reason: str) -> None:
        """Go on with the release that an earlier workflow run began, and get another machine."""
        if self._steps.status in (NodeStatus.MAINTENANCE, NodeStatus.OFFLINE):
            await self._machine_change.resume(reason)
            await self._onboard()

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    def _requirements(self, hardware: Hardware) -> tuple[Requirement, ...]:
        return requirements_of(self._request, hardware, self._location.host)

    async def _show_outage(self, reason: str, is_unserved: bool) -> None:
        """Notify the jobs of an outage, and the region where no worker process serves it."""
        await self._running_jobs.notify(NodeNotice.UNREACHABLE, reason)
        if is_unserved:
            await self._region.refresh()

    async def _show_return(self) -> None:
        await self._running_jobs.notify(NodeNotice.REACHABLE)

    def _next_run(self) -> NodeRequest | None:
        """The request of the next workflow run, with a watch of its own; None: messages wait."""
        # The others read the row when they resume.
        needs_wake = self._steps.status not in _ONBOARDED
        if self._inbox.holds_others_than(*_REPEATED) or (needs_wake and self._inbox.holds(Wake)):
            return None
        self._watch.stop()
        progress = NodeProgress(
            status=self._steps.status,
            **self._location.progress(),
            sequence=self._journal.sequence,
            resume_status=self._steps.resume_status,
            **self._machine.progress(),
            tidy_at=self._upkeep.tidy_at,
            end_tries=self._running_jobs.end_tries,
            unheld_runs=self._running_jobs.unheld_runs,
            unlisted=self._running_jobs.unlisted,
            reason=self._journal.reason,
            idle_workload=self._idle_workload.revision,
            shown_status=self._console.shown,
            **self._removal.progress(),
        )
        return self._request.model_copy(update={"resumed_from": progress})

    def _report(self) -> NodeReport:
        return NodeReport(
            node_id=self._request.node_id,
            status=self._steps.status,
            status_reason=self._journal.reason,
        )
