"""The life of a machine that costs money: the only place that acquires and releases one."""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows.contracts.errors import (
    CAPACITY_EXHAUSTED,
    HOST_KEY_MISMATCH,
    OUT_OF_TIME,
    PRICE_CAP,
    REQUEST_REFUSED,
    UNAVAILABLE,
)
from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import (
    LeaseProgress,
    LeaseRelease,
    LeaseReport,
    LeaseRequest,
    MachineLost,
)
from workflows.contracts.lifecycles import LeaseChanges, Refresh, Removal
from workflows.contracts.machines import MachineNews, MachineObservation, MachineOffer, Shortage
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import LeaseStatus, MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    FindShortages,
    RememberShortage,
    TerminateMachine,
    create_machine,
    describe_machine,
    describe_machine_briefly,
    find_shortages,
    remember_shortage,
    terminate_machine,
    wait_for_machine,
)
from workflows.effects.nodes import ReachNode, await_ssh
from workflows.leases.holder import Holder
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, shielded
from workflows.rules.billing.metering import cumulative_microcredits

POLL_INTERVAL = timedelta(minutes=10)
NOTIFIED_POLL_INTERVAL = timedelta(seconds=30)
"""A provider tells of an end before it shows it: then it is looked at once more."""
RELEASE_INTERVAL = timedelta(minutes=1)
CANCELED_OUTSIDE = LeaseRelease(reason="canceled in Temporal")
_BEGINNINGS = (LeaseStatus.RESERVED, LeaseStatus.CREATING, LeaseStatus.WAITING_FOR_SSH)
_NO_OTHER_OFFER = (REQUEST_REFUSED, HOST_KEY_MISMATCH, OUT_OF_TIME)
"""Failures that the next offer would not mend."""

Answer = TypeVar("Answer")


@workflow.defn(name="LeaseLifecycle")
class LeaseLifecycle:
    """One machine, from the lease that was committed for it until its provider says it is gone.

    reserved → creating → waiting_for_ssh → ready → releasing → released · refused

    At most one offer is being tried, and its row names it before anything is made there. Whatever
    happens then, the machine of that name is released at that place, and seen to be gone, before
    another offer is tried or the workflow ends.
    """

    @workflow.init
    def __init__(self, request: LeaseRequest) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self._journal = Journal(
            request.lease_id,
            request.account_id,
            resumed_from.sequence if resumed_from else request.sequence,
        )
        self._status = resumed_from.status if resumed_from else LeaseStatus.RESERVED
        self._offer = resumed_from.offer if resumed_from else None
        self._seen = resumed_from.seen if resumed_from else None
        self._was_ready = resumed_from.was_ready if resumed_from else False
        self._release_request = resumed_from.released if resumed_from else None
        self._lost = resumed_from.lost if resumed_from else None
        self._earlier_microcredits = resumed_from.earlier_microcredits if resumed_from else 0
        """What the machines of earlier offers have cost that were not kept."""
        self._earlier_ended_at: datetime | None = None
        """When the last of them ended."""
        self._holder = Holder(request.holder_id, request.lease_id, self._record_event)
        self._inbox = Inbox()
        self._out_of_time = False
        self._news: MachineNews | None = None
        """What its provider has told of it, until it is seen to be there none the less."""
        self._silent = ""
        """Why its provider could not be asked the last time."""

    @workflow.run
    async def run(self, request: LeaseRequest) -> LeaseReport:
        clock = asyncio.create_task(self._mind_the_time())
        try:
            if request.resumed_from is None or self._status in _BEGINNINGS:
                await self._acquire()
            if self._status is LeaseStatus.READY and self._release_request is None:
                await self._serve()
        except (*EFFECT_FAILED, Interrupted, asyncio.CancelledError) as cause:
            self._note(cause)
        clock.cancel()
        await shielded(self._release(), self._canceled_outside)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _acquire(self) -> None:
        """The first offer that can be had. Raises: ApplicationError with every refusal."""
        asked = FindShortages(provider_id=self._request.provider_id)
        found = await self._unless_over(find_shortages.run_locally(asked))
        shortages = {one.scope: one for one in found.shortages}
        refusals = []
        for offer in self._in_turn():
            self._must_have_time()
            refusal = self._refusal_before(offer, shortages) or await self._try(offer)
            if refusal is None:
                self._status = LeaseStatus.READY
                return
            refusals.append(f"{offer.scope}: {refusal}")
            await self._write(Event(type=LeaseEvent.OFFER_REFUSED, message=refusals[-1]))
        raise ApplicationError("; ".join(refusals) or "no offers", type=CAPACITY_EXHAUSTED)

    def _in_turn(self) -> list[MachineOffer]:
        """The one that was being tried comes first: something of it may be there."""
        begun = [] if self._offer is None else [self._offer]
        return begun + [offer for offer in self._request.offers if offer not in begun]

    def _refusal_before(self, offer: MachineOffer, shortages: Mapping[str, Shortage]) -> str | None:
        """Why it is not even tried, None: it is."""
        if offer == self._offer:
            return None
        if offer.scope in shortages:
            short = shortages[offer.scope]
            return f"{short.reason}; not asked again before {short.until:%H:%M:%S} UTC"
        return self._too_dear(offer.microcredits_per_hour)

    async def _try(self, offer: MachineOffer) -> str | None:
        """None: it answers over SSH. Else why it is not to be had, with nothing left of it."""
        is_another = self._offer not in (None, offer)
        self._offer, self._seen, self._status = offer, None, LeaseStatus.CREATING
        message = f"{offer.machine_type} in {offer.zone or 'any zone'} is asked for"
        await self._write(Event(type=LeaseEvent.CREATING, message=message), is_another=is_another)
        try:
            await self._unless_over(self._make(offer))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            kind, reason = cause_of(failure)
            if kind in _NO_OTHER_OFFER:
                raise
        else:
            return None
        await shielded(self._give_up(), self._canceled_outside)
        if kind == CAPACITY_EXHAUSTED:
            await self._remember(offer.scope, reason)
        return reason

    async def _give_up(self) -> None:
        """Nothing of this offer is left, and what it has cost is kept."""
        ended = await self._end_it()
        self._earlier_ended_at = ended.ended_at
        if ended.began_at is not None and ended.ended_at is not None:
            seconds = int((ended.ended_at - ended.began_at).total_seconds())
            self._earlier_microcredits += cumulative_microcredits(self._price(), seconds)

    def _price(self) -> int:
        """Microcredits an hour: what the provider says, else what was offered."""
        seen = self._seen.microcredits_per_hour if self._seen else None
        return seen or (self._offer.microcredits_per_hour if self._offer else 0)

    async def _remember(self, scope: str, reason: str) -> None:
        short = RememberShortage(provider_id=self._request.provider_id, scope=scope, reason=reason)
        try:
            await self._unless_over(remember_shortage(short))
        except ActivityError as failure:
            if is_cancelled_exception(failure):
                raise
            # The next one asks in vain once more, and that is all.
            workflow.logger.warning("a shortage is not remembered: %s", cause_of(failure)[1])

    async def _make(self, offer: MachineOffer) -> None:
        """Found or made; then it has an address and a key; then it answers with that key."""
        made = CreateMachine(**self._name, offer=offer, spec=self._request.spec)
        await self._see(await create_machine(made))
        seen = await wait_for_machine(DescribeMachine(**self._name))
        if not seen.is_reachable:
            reason = seen.reason or f"it is {seen.state} and was never to be reached"
            raise ApplicationError(reason, type=UNAVAILABLE)
        price = seen.microcredits_per_hour
        if price is not None and (too_dear := self._too_dear(price)):
            raise ApplicationError(too_dear, type=PRICE_CAP)
        self._status = LeaseStatus.WAITING_FOR_SSH
        await self._see(seen)
        await await_ssh(ReachNode(node=self._address(seen)))

    def _too_dear(self, microcredits_per_hour: int) -> str | None:
        cap = self._request.price_cap_microcredits_per_hour
        if cap is None or microcredits_per_hour <= cap:
            return None
        return f"costs {microcredits_per_hour} microcredits an hour, the cap is {cap}"

    async def _serve(self) -> None:
        """Until it is given back, its time is up, or its provider has ended it."""
        is_new, self._was_ready = not self._was_ready, True
        if is_new:
            await self._write(Event(type=LeaseEvent.READY, message=f"answers at {self._where()}"))
        if not await self._tell_ready() and is_new:
            raise ApplicationError(f"{self._holder.id}, whom it is for, is not there")
        while not self._release_request:
            if workflow.info().is_continue_as_new_suggested() and not len(self._inbox):
                self._continue()
            interval = NOTIFIED_POLL_INTERVAL if self._news else POLL_INTERVAL
            told = await self._unless_over(self._inbox.wait(interval))
            await self._look()
            if told is None:
                self._news = None

    async def _mind_the_time(self) -> None:
        left = self._request.deadline - workflow.now()
        if left > timedelta(0):
            await workflow.sleep(left, summary="its time is up")
        self._out_of_time = True

    def _must_have_time(self) -> None:
        """Raises: ApplicationError."""
        if self._out_of_time or self._request.deadline <= workflow.now():
            message = f"its time is up: {self._request.deadline:%F %T} UTC"
            raise ApplicationError(message, type=OUT_OF_TIME)

    async def _look(self) -> None:
        """Raises: ApplicationError, when it is no more. Who cannot be asked has not ended it."""
        try:
            seen = await self._unless_over(describe_machine(DescribeMachine(**self._name)))
        except ActivityError as failure:
            if is_cancelled_exception(failure):
                raise
            silent = f"its provider cannot be asked: {cause_of(failure)[1]}"
            if silent != self._silent:
                await self._write(Event(type=LeaseEvent.NOT_SEEN, message=silent))
            self._silent = silent
            return
        self._silent = ""
        if seen.state not in (MachineState.RUNNING, MachineState.MAKING):
            if self._seen is not None and seen.ended_at is not None:
                self._seen = self._seen.model_copy(update={"ended_at": seen.ended_at})
            raise ApplicationError(self._why_it_ended(seen))
        known = self._seen.provider_machine_id if self._seen else None
        if known and seen.provider_machine_id not in (None, known):
            raise ApplicationError(f"{known} is gone, and another machine has its name")

    def _why_it_ended(self, seen: MachineObservation) -> str:
        if self._news is not None:
            return f"{self._news.what} at {self._news.at:%F %T} UTC"
        return seen.reason or f"its provider says that it is {seen.state}"

    async def _release(self) -> None:
        """Nothing of it is left, and its provider has said so."""
        reason = self._reason()
        if self._offer is not None:
            await self._say_releasing(reason)
        if self._release_request is None or not self._release_request.by_holder:
            await self._holder.tell_lost(self._lost or self._taken_away(reason))
        if self._offer is not None:
            self._seen = await self._end_it()
        is_refused = not self._was_ready and self._release_request is None
        self._status = LeaseStatus.REFUSED if is_refused else LeaseStatus.RELEASED
        await self._write(
            Event(type=LeaseEvent(f"lease.{self._status}"), message=reason), reason=reason
        )

    async def _say_releasing(self, reason: str) -> None:
        if self._status is not LeaseStatus.RELEASING:
            self._status = LeaseStatus.RELEASING
            await self._write(Event(type=LeaseEvent.RELEASING, message=reason), reason=reason)

    async def _end_it(self) -> MachineObservation:
        """Asked for until it is gone; a refusal is shown to people, and is asked again."""
        was_unseen = self._seen is None and not await self._glance()
        told = ""
        while True:
            try:
                known_id = self._seen.provider_machine_id if self._seen else None
                command = TerminateMachine(
                    **self._name, provider_machine_id=known_id, was_unseen=was_unseen
                )
                return self._ended(await terminate_machine(command))
            except EFFECT_FAILED as failure:
                reason = f"it could not be ended and may still cost: {cause_of(failure)[1]}"
            if reason != told:
                await self._write(
                    Event(type=LeaseEvent.NOT_RELEASED, message=reason), reason=reason
                )
                told = reason
            await workflow.sleep(RELEASE_INTERVAL, summary="its release is asked for again")
            if (
                self._status is LeaseStatus.RELEASING
                and workflow.info().is_continue_as_new_suggested()
            ):
                self._continue()

    def _ended(self, gone: MachineObservation) -> MachineObservation:
        """What it was, with its end; by its provider's clock where that says when it was."""
        earlier = self._earlier_ended_at
        if earlier is not None and gone.began_at is not None and gone.began_at < earlier:
            gone = MachineObservation(state=gone.state)  # that was the one of an earlier offer
        known = self._seen or gone
        update = {
            "state": gone.state,
            "began_at": known.began_at or gone.began_at,
            "ended_at": gone.ended_at or known.ended_at or workflow.now(),
        }
        return known.model_copy(update=update)

    async def _glance(self) -> bool:
        """Of a machine whose making went unanswered: since when, and how much, it costs.

        False: its provider could not be asked.
        """
        try:
            seen = await describe_machine_briefly(DescribeMachine(**self._name))
        except EFFECT_FAILED as failure:
            message = f"what it has cost is not known: {cause_of(failure)[1]}"
            await self._record_event(Event(type=LeaseEvent.COST_UNKNOWN, message=message))
            return False
        if seen.state is not MachineState.GONE:
            await self._see(seen)
        return True

    # ── messages ────────────────────────────────────────────────────────────────────────────

    @workflow.signal(description="The machine is not needed any more.")
    async def release(self, asked: LeaseRelease) -> None:
        """Written down at once: what is under way may go on for minutes, and be killed."""
        if self._release_request is None and not self._status.is_final:
            self._release_request = asked
            await self._say_releasing(asked.reason)

    @workflow.signal(description="Its region or provider is removed.")
    async def remove(self, removal: Removal) -> None:
        await self.release(LeaseRelease(reason=f"removed by {removal.requested_by or 'a person'}"))

    @workflow.signal(description="Its provider has news of it: look now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):
            self._inbox.put(Refresh())

    @workflow.signal(description="Its provider tells what has happened to it.")
    def news(self, told: MachineNews) -> None:
        known = self._seen.provider_machine_id if self._seen else None
        if not known or told.provider_machine_id in ("", known):
            self._news = told
        self.refresh()

    @workflow.query(description="Status, reason, and what the provider says.")
    def status(self) -> LeaseReport:
        return self._report()

    # ── plumbing ────────────────────────────────────────────────────────────────────────────

    def _note(self, cause: BaseException) -> None:
        if is_cancelled_exception(cause):
            self._canceled_outside()
        elif self._release_request is None:
            kind, reason = cause_of(cause)
            self._lost = MachineLost(
                lease_id=self._request.lease_id,
                reason=reason,
                capacity_exhausted=kind == CAPACITY_EXHAUSTED,
                ended_at=self._told_end(),
            )

    def _told_end(self) -> datetime | None:
        """The earliest that its provider has told; None: it has not told when."""
        told = [self._news.at] if self._news else []
        if self._seen is not None and self._seen.ended_at is not None:
            told.append(self._seen.ended_at)
        return min(told, default=None)

    def _canceled_outside(self) -> None:
        self._release_request = self._release_request or CANCELED_OUTSIDE

    def _reason(self) -> str:
        if self._release_request is not None:
            return self._release_request.reason
        return self._lost.reason if self._lost else "its release goes on"

    def _taken_away(self, reason: str) -> MachineLost:
        by_person = self._release_request is not None and self._release_request.by_person
        return MachineLost(lease_id=self._request.lease_id, reason=reason, by_person=by_person)

    async def _unless_over(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Raises: Interrupted, when it is given back; ApplicationError, when its time is up."""
        try:
            return await interruptible(
                work, when=lambda: self._release_request is not None or self._out_of_time
            )
        except Interrupted:
            if self._release_request is None:
                self._must_have_time()
            raise

    async def _see(self, seen: MachineObservation) -> None:
        """What is known of it is written down before anything is waited for."""
        before = self._seen.began_at if self._seen else None
        supposed = None if seen.state is MachineState.MAKING else workflow.now()
        update = {"began_at": seen.began_at or before or supposed}
        self._seen = seen.model_copy(update=update)
        message = f"its provider says: {seen.state} {seen.provider_machine_id or ''}".rstrip()
        await self._write(Event(type=LeaseEvent.SEEN, message=message))

    @property
    def _name(self) -> dict[str, Any]:
        request = self._request
        return {
            "lease_id": request.lease_id,
            "provider_id": request.provider_id,
            "provider_kind": request.provider_kind,
            "machine_name": request.machine_name,
            "zone": self._offer.zone if self._offer else "",
        }

    def _address(self, seen: MachineObservation) -> NodeAddress:
        return NodeAddress(
            node_id=self._request.holder_id,
            region_id=self._request.region_id,
            host=seen.host or "",
            port=seen.port,
            user=seen.user,
            minion_id=seen.minion_id or "",
        )

    def _where(self) -> str:
        return "" if self._seen is None else f"{self._seen.host}:{self._seen.port}"

    async def _tell_ready(self) -> bool:
        """Whether there is somebody who has heard it; where that cannot be known, there is."""
        if self._seen is None or self._offer is None:
            return True
        return await self._holder.tell_ready(self._seen, self._offer)

    async def _record_event(self, event: Event) -> None:
        """An event that leaves status and reason as they are."""
        await self._write(event, reason=self._journal.reason)

    def _continue(self) -> None:
        carry = LeaseProgress(
            sequence=self._journal.sequence,
            status=self._status,
            offer=self._offer,
            seen=self._seen,
            was_ready=self._was_ready,
            released=self._release_request,
            lost=self._lost,
            earlier_microcredits=self._earlier_microcredits,
        )
        workflow.continue_as_new(self._request.model_copy(update={"resumed_from": carry}))

    async def _write(
        self, event: Event, *, reason: str | None = None, is_another: bool = False
    ) -> None:
        known: dict[str, Any] = {}
        if self._seen is not None:
            known = self._seen.model_dump(exclude={"state", "zone", "offer_label", "reason"})
        changes = LeaseChanges(
            offer=self._offer,
            earlier_microcredits=self._earlier_microcredits,
            is_another=is_another,
            **known,
        )
        await self._journal.write(self._status, changes, event, reason=reason)

    def _report(self) -> LeaseReport:
        return LeaseReport(
            lease_id=self._request.lease_id,
            status=self._status,
            status_reason=self._journal.reason,
            seen=self._seen,
        )
