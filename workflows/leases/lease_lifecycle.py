"""The lifecycle of a lease, which alone creates and terminates machines at providers."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows.contracts.errors import (
    CAPACITY_EXHAUSTED,
    HOST_KEY_MISMATCH,
    OUT_OF_TIME,
    PRICE_CAP,
    REQUEST_REFUSED,
    STALE,
    UNAVAILABLE,
)
from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import (
    LeaseProgress,
    LeaseRelease,
    LeaseReport,
    LeaseRequest,
    MachineLost,
    ReleaseProgress,
)
from workflows.contracts.lifecycles import LeaseChanges, Refresh
from workflows.contracts.machines import (
    MachineNotification,
    MachineObservation,
    MachineOffer,
)
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import LeaseStatus, MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    create_machine,
    describe_machine,
    describe_machine_briefly,
)
from workflows.effects.nodes import ReachNode, await_ssh
from workflows.leases.deadline import Deadline
from workflows.leases.holder import Holder
from workflows.leases.machine import Machine
from workflows.leases.machine_end import MachineEnd
from workflows.leases.offers import Offers
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, shielded, with_watch
from workflows.rules.catalogue.providers import traits_of

POLL_INTERVAL = timedelta(minutes=10)
QUIET_POLL_INTERVAL = timedelta(minutes=2)
"""At a provider that sends no notifications."""
START_POLL_INTERVAL = timedelta(minutes=1)
"""While a machine starts that does not answer over SSH yet."""
NOTIFIED_POLL_INTERVAL = timedelta(seconds=30)
"""After a notification, which a provider sends before its own answers show the machine's end, and
while it ends the machine."""
RUNS_WHILE_ENDING = "an-ending-machine-still-runs"
"""The patch since which a machine that its provider is ending is not lost before it has ended."""
CAP_AT_CREATION = "the-cap-holds-at-the-creation"
"""The patch since which a machine above the price cap is ended before it is awaited."""
GIVES_UP_AWAY = "a-host-that-stays-away-is-given-up"
"""The patch since which a rented machine is ended whose host is away for long."""
RELEASE_INTERVAL = timedelta(minutes=1)
"""Between two notifications of a holder that could not be notified of the loss."""
CANCELED_OUTSIDE = LeaseRelease(reason="canceled in Temporal")
_ACQUIRING = (LeaseStatus.RESERVED, LeaseStatus.CREATING, LeaseStatus.WAITING_FOR_SSH)
_NO_OTHER_OFFER = (REQUEST_REFUSED, HOST_KEY_MISMATCH, OUT_OF_TIME)
"""Failures that the next offer would not avoid."""

Answer = TypeVar("Answer")


@workflow.defn(name="LeaseLifecycle")
class LeaseLifecycle:
    """The lifecycle of one lease, from its row until the provider says that its machine is gone.

    reserved → creating → waiting_for_ssh → ready → releasing → released · refused

    A ready lease ends in one of two ways. Its deadline is a planned end: the holder is notified
    before, and leaves. A loss is notified only when the provider has shown that the machine has
    ended, by itself or because the lease has terminated it. A provider tells of a preemption or a
    deletion when it begins: commands run on meanwhile, and must not begin elsewhere.

    The lease tries one offer at a time, and its row names the offer before a machine is created.
    Whatever happens then, the machine of that name is terminated in that zone, and the provider
    confirms that it is gone, before the lease tries another offer or ends.
    """

    @workflow.init
    def __init__(self, request: LeaseRequest) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self._journal = Journal(
            request.lease_id,
            request.account_id,
            resumed_from.sequence if resumed_from else request.sequence,
            resumed_from.reason if resumed_from else None,
        )
        self._journal.next_run = self._next_run
        self._status = resumed_from.status if resumed_from else LeaseStatus.RESERVED
        self._machine = Machine(request, resumed_from)
        self._was_ready = resumed_from.was_ready if resumed_from else False
        self._release_request = resumed_from.released if resumed_from else None
        self._lost = resumed_from.lost if resumed_from else None
        self._offers = Offers(request, self._machine)
        self._deadline = Deadline(request, self._record_event)
        self._machine_end = MachineEnd(self._machine, self._journal, self._write, self._observe)
        self._holder = Holder(request.holder_id, request.lease_id, self._record_event)
        self._inbox = Inbox()
        if resumed_from is not None and resumed_from.is_adopted:
            self._inbox.put(Refresh())  # The machine may have ended unseen.
        self._poll_error = ""
        """Why the last poll of the provider failed; empty: it did not."""

    @workflow.run
    async def run(self, request: LeaseRequest) -> LeaseReport:
        clock = asyncio.create_task(self._deadline.watch())
        try:
            if request.resumed_from is None or self._status in _ACQUIRING:
                await self._acquire()
            if self._status is LeaseStatus.READY and self._release_request is None:
                await self._serve()
        except (*EFFECT_FAILED, Interrupted, asyncio.CancelledError) as cause:
            self._record_cause(cause)
        clock.cancel()
        await shielded(self._release(), self._canceled_outside)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _acquire(self) -> None:
        """Acquire a machine by the first offer that the provider can satisfy.

        Raises: ApplicationError, with the refusals of all offers.
        """
        await self._interruptible(self._offers.find_shortages())
        refusals = []
        for offer in self._offers.in_order():
            self._deadline.check()
            refusal = self._offers.refusal_before(offer) or await self._try(offer)
            if refusal is None:
                self._status = LeaseStatus.READY
                return
            refusals.append(f"{offer.scope}: {refusal}")
            await self._write(Event(type=LeaseEvent.OFFER_REFUSED, message=refusals[-1]))
        raise ApplicationError("; ".join(refusals) or "no offers", type=CAPACITY_EXHAUSTED)

    async def _try(self, offer: MachineOffer) -> str | None:
        """Try one offer. None: its machine answers over SSH.

        Else the refusal, when the machine of the offer, if any, is gone.
        """
        is_another, self._status = self._machine.try_offer(offer), LeaseStatus.CREATING
        message = f"{offer.machine_type} in {offer.zone or 'any zone'} is being created"
        await self._write(Event(type=LeaseEvent.CREATING, message=message), is_another=is_another)
        try:
            await self._interruptible(self._make(offer))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            kind, reason = cause_of(failure)
            if kind in _NO_OTHER_OFFER:
                raise
        else:
            return None
        await shielded(self._abandon_offer(), self._canceled_outside)
        if kind == CAPACITY_EXHAUSTED:
            await self._interruptible(self._offers.remember_shortage(offer.scope, reason))
        return reason

    async def _abandon_offer(self) -> None:
        """Terminate the machine of the offer, and add its cost to that of earlier offers."""
        self._machine.abandon(await self._machine_end.terminate())

    async def _make(self, offer: MachineOffer) -> None:
        """Find or create the machine, then wait until it answers over SSH with its host key.

        Raises: ApplicationError, when the machine is gone or above the price cap; ActivityError.
        """
        created = await self._create(offer)
        await self._observe(created)
        if (over_cap := self._offers.over_cap_of(created)) and workflow.patched(CAP_AT_CREATION):
            raise ApplicationError(over_cap, type=PRICE_CAP)
        seen = await self._machine.wait()
        if not seen.is_reachable:
            reason = seen.reason or f"the machine is {seen.state} and could not be reached"
            raise ApplicationError(reason, type=UNAVAILABLE)
        if over_cap := self._offers.over_cap_of(seen):
            raise ApplicationError(over_cap, type=PRICE_CAP)
        self._status = LeaseStatus.WAITING_FOR_SSH
        await self._observe(seen)
        answers = await_ssh(ReachNode(node=self._machine.address(seen)))
        await with_watch(answers, self._watch_start())

    async def _create(self, offer: MachineOffer) -> MachineObservation:
        command = CreateMachine(
            **self._machine.name,
            offer=offer,
            spec=self._request.spec,
            price_cap_microcredits_per_hour=self._request.price_cap_microcredits_per_hour,
            sequence=self._journal.sequence,
        )
        try:
            return await create_machine(command)
        except ActivityError as failure:
            if cause_of(failure)[0] == STALE:
                # Unless the lease has taken a step meanwhile, the row has a step of another.
                await self._journal.stop_if_behind(command.sequence + 1)
            raise

    async def _watch_start(self) -> None:
        """Poll the provider while the machine starts, which may end before it answers.

        Raises: ApplicationError, when the machine is gone or another machine has its name.
        """
        while True:
            interval = NOTIFIED_POLL_INTERVAL if self._machine.notification else START_POLL_INTERVAL
            await self._inbox.wait(interval)
            await self._poll()

    async def _serve(self) -> None:
        """Hold the machine until its release, its deadline, or its end at the provider."""
        is_new, self._was_ready = not self._was_ready, True
        if is_new:
            await self._write(
                Event(type=LeaseEvent.READY, message=f"answers at {self._machine.place}")
            )
        if not await self._notify_ready() and is_new:
            raise self._holder_is_missing()
        while not self._release_request:
            await self._journal.continue_when_long()
            if self._deadline.until_notice() <= timedelta(0):
                await self._notify_ending()
            message = await self._interruptible(self._inbox.wait(self._poll_interval()))
            if not self._must_notify():
                await self._poll()
            if message is None and self._machine.runs_until is None:
                self._machine.notification = None

    def _poll_interval(self) -> timedelta:
        notifies = traits_of(self._request.provider_kind).notifies
        interval = POLL_INTERVAL if notifies else QUIET_POLL_INTERVAL
        if self._machine.notification:
            interval = NOTIFIED_POLL_INTERVAL
        if (until := self._machine.runs_until) is not None:
            left = max(until - workflow.now(), timedelta(seconds=1))
            interval = min(NOTIFIED_POLL_INTERVAL, left)
        return min(interval, self._deadline.until_next_notice())

    async def _notify_ending(self) -> None:
        """Notify the holder of the deadline, so that it leaves the machine before.

        Raises: ApplicationError, when the holder does not exist.
        """
        ending = await self._deadline.announce()
        if not await self._interruptible(self._holder.notify_ending(ending)):
            raise self._holder_is_missing()

    def _holder_is_missing(self) -> ApplicationError:
        return ApplicationError(f"{self._holder.id}: the holder of the lease does not exist")

    def _must_notify(self) -> bool:
        """Whether the holder of a ready machine is now to be notified of the deadline, once."""
        return self._status is LeaseStatus.READY and self._deadline.must_announce

    async def _poll(self) -> None:
        """Poll the provider; a failed poll does not mean that the machine is gone.

        An answer that is not there when the holder is to be notified of the deadline is not awaited
        any longer, because the holder needs the time.

        Raises: ApplicationError, when the machine is gone or another machine has its name.
        """
        is_ending = self._machine.runs_until is not None
        describe = describe_machine_briefly if is_ending else describe_machine
        try:
            answer = describe(DescribeMachine(**self._machine.name))
            seen = await interruptible(self._interruptible(answer), when=self._must_notify)
        except Interrupted:
            if self._release_request is not None:
                raise
            return
        except ActivityError as failure:
            if is_cancelled_exception(failure):
                raise
            error = f"the provider cannot be reached: {cause_of(failure)[1]}"
            if error != self._poll_error:
                await self._write(Event(type=LeaseEvent.NOT_SEEN, message=error))
            self._poll_error = error
            if reason := self._machine.unseen_end():
                raise ApplicationError(reason) from failure
            return
        self._poll_error = ""
        if self._still_runs(seen):
            if (event := self._machine.begin_end(seen)) is not None:
                await self._record_event(event)
            return
        reason = self._machine.loss(seen) or self._absence(seen)
        if reason:
            raise ApplicationError(reason)

    def _absence(self, seen: MachineObservation) -> str | None:
        """Why a ready machine is given up that its provider has shown without an address."""
        if not self._was_ready:
            return None
        reason = self._machine.absence(seen)
        return reason if reason and workflow.patched(GIVES_UP_AWAY) else None

    def _still_runs(self, seen: MachineObservation) -> bool:
        """Whether the holder's commands may still run on a machine that its provider is ending."""
        is_ending = self._was_ready and seen.state is MachineState.ENDING
        is_in_time = is_ending and not self._machine.has_run_out
        return is_in_time and workflow.patched(RUNS_WHILE_ENDING)

    async def _release(self) -> None:
        """Terminate the machine until its provider says that it is gone, and notify the holder.

        The holder of a machine that serves is notified after that, because the notification says
        that nothing of the holder runs any more.
        """
        reason = self._reason()
        if self._machine.offer is not None:
            await self._record_releasing(reason)
        is_notified = False
        if not self._was_ready or self._machine.is_lost_at_provider:
            is_notified = await self._notify_lost(reason)
        if self._machine.offer is not None:
            self._machine.seen = await self._machine_end.terminate()
        while not is_notified and not await self._notify_lost(reason):
            await workflow.sleep(RELEASE_INTERVAL, summary="before the holder is notified again")
            await self._journal.continue_when_long()
        is_refused = not self._was_ready and self._release_request is None
        self._status = LeaseStatus.REFUSED if is_refused else LeaseStatus.RELEASED
        await self._write(
            Event(type=LeaseEvent(f"lease.{self._status}"), message=reason), reason=reason
        )

    async def _notify_lost(self, reason: str) -> bool:
        """Notify the holder, unless it has released the lease. False: that is to be repeated."""
        released = self._release_request
        if released is not None and released.by_holder:
            return True
        lost = self._lost or MachineLost(
            lease_id=self._request.lease_id,
            reason=reason,
            by_person=released is not None and released.by_person,
        )
        return await self._holder.notify_lost(
            lost.model_copy(update={"ended_at": self._machine.ended_at})
        )

    async def _record_releasing(self, reason: str) -> None:
        if self._status is not LeaseStatus.RELEASING:
            self._status = LeaseStatus.RELEASING
            await self._write(Event(type=LeaseEvent.RELEASING, message=reason), reason=reason)

    # ── messages ────────────────────────────────────────────────────────────────────────────

    @workflow.signal(description="The machine is not needed any more.")
    async def release(self, asked: LeaseRelease) -> None:
        """Record the release at once, because a running activity may delay it for minutes."""
        if self._release_request is None and not self._status.is_final:
            self._release_request = asked
            await self._record_releasing(asked.reason)

    @workflow.signal(description="The region or provider of the machine is being removed.")
    async def remove(self, removal: Removal) -> None:
        await self.release(LeaseRelease(reason=f"removed by {removal.requested_by or 'a person'}"))

    @workflow.signal(description="Poll the provider now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):
            self._inbox.put(Refresh())

    @workflow.signal(description="The provider has sent a notification about the machine.")
    def notified(self, notification: MachineNotification) -> None:
        self._machine.take_notification(notification)
        self.refresh()

    @workflow.query(description="Status, reason, and what the provider says.")
    def status(self) -> LeaseReport:
        return self._report()

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    def _record_cause(self, cause: BaseException) -> None:
        if is_cancelled_exception(cause):
            self._canceled_outside()
        elif self._release_request is None:
            kind, reason = cause_of(cause)
            self._lost = MachineLost(
                lease_id=self._request.lease_id,
                reason=reason,
                capacity_exhausted=kind == CAPACITY_EXHAUSTED,
            )

    def _canceled_outside(self) -> None:
        self._release_request = self._release_request or CANCELED_OUTSIDE

    def _reason(self) -> str:
        if self._release_request is not None:
            return self._release_request.reason
        return self._lost.reason if self._lost else "the release is continued"

    async def _interruptible(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Await `work`, and cancel it at the release or the deadline of the lease.

        Raises: Interrupted, at the release; ApplicationError `OutOfTime`, at the deadline.
        """
        try:
            return await interruptible(
                work, when=lambda: self._release_request is not None or self._deadline.has_passed
            )
        except Interrupted:
            if self._release_request is None:
                self._deadline.check()
            raise

    async def _observe(self, seen: MachineObservation) -> None:
        """Record an observation at once, before the lease waits for anything."""
        await self._write(self._machine.observe(seen))

    async def _notify_ready(self) -> bool:
        """Notify the holder that the machine is ready. False: the holder does not exist."""
        seen, offer = self._machine.seen, self._machine.offer
        if seen is None or offer is None:
            return True
        return await self._holder.notify_ready(seen, offer)

    async def _record_event(self, event: Event) -> None:
        """Record an event that leaves status and reason as they are."""
        await self._write(event, reason=self._journal.reason)

    def _next_run(self) -> LeaseRequest | None:
        """The request of the next workflow run; None while messages wait for a ready lease."""
        if len(self._inbox) and self._status is LeaseStatus.READY:
            return None
        progress = LeaseProgress(
            sequence=self._journal.sequence,
            status=self._status,
            offer=self._machine.offer,
            seen=self._machine.seen,
            was_ready=self._was_ready,
            released=self._release_request,
            lost=self._lost,
            is_lost_at_provider=self._machine.is_lost_at_provider,
            runs_until=self._machine.runs_until,
            is_ending=self._deadline.is_announced,
            earlier_microcredits=self._machine.earlier_microcredits,
            reason=self._journal.reason,
        )
        return self._request.model_copy(update={"resumed_from": progress})

    async def _write(
        self, event: Event, *, reason: str | None = None, is_another: bool = False
    ) -> None:
        known: dict[str, Any] = {}
        if self._machine.seen is not None:
            known = self._machine.seen.model_dump(
                exclude={"state", "zone", "offer_label", "reason"}
            )
        changes = LeaseChanges(
            offer=self._machine.offer,
            ending=self._ending(),
            earlier_microcredits=self._machine.earlier_microcredits,
            is_another=is_another,
            **known,
        )
        await self._journal.write(self._status, changes, event, reason=reason)

    def _ending(self) -> ReleaseProgress | None:
        """Why the lease is being released, for its row; None: it is not."""
        if self._status is not LeaseStatus.RELEASING:
            return None
        return ReleaseProgress(
            was_ready=self._was_ready, released=self._release_request, lost=self._lost
        )

    def _report(self) -> LeaseReport:
        return LeaseReport(
            lease_id=self._request.lease_id,
            status=self._status,
            status_reason=self._journal.reason,
            seen=self._machine.seen,
        )
