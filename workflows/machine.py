"""The life of a machine that costs money: the only place that acquires and releases one."""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from workflows.contracts.errors import (
    CAPACITY_EXHAUSTED,
    HOST_KEY_MISMATCH,
    PRICE_CAP,
    REQUEST_REFUSED,
    UNAVAILABLE,
)
from workflows.contracts.events import Event
from workflows.contracts.machine import (
    GiveBack,
    MachineCarry,
    MachineLost,
    MachineOffer,
    MachineReady,
    MachineReport,
    MachineRequest,
    MachineSeen,
    Shortage,
)
from workflows.contracts.node import NodeAddress
from workflows.contracts.provider import Look, Removal
from workflows.contracts.record import LeaseChanges
from workflows.contracts.states import LeaseStatus, MachineState
from workflows.effects.machine import (
    CreateMachine,
    FindShortages,
    LookAtMachine,
    ReleaseMachine,
    RememberShortage,
    TellHolder,
    await_machine,
    create_machine,
    find_shortages,
    glance_at_machine,
    look_at_machine,
    release_machine,
    remember_shortage,
    tell_holder,
)
from workflows.effects.node import ReachNode, await_ssh
from workflows.journal import EFFECT_FAILED, Inbox, Journal, cause_of
from workflows.rules.metering import cumulative_microcredits
from workflows.waiting import Interrupted, undisturbed, unless

LOOK_INTERVAL = timedelta(minutes=10)
RELEASE_INTERVAL = timedelta(minutes=1)
CANCELED_OUTSIDE = GiveBack(reason="canceled in Temporal")
_BEGINNINGS = (LeaseStatus.RESERVED, LeaseStatus.CREATING, LeaseStatus.WAITING_FOR_SSH)

Answer = TypeVar("Answer")


@workflow.defn(name="MachineLifecycle")
class MachineLifecycle:
    """One machine, from the lease that was committed for it until its provider says it is gone.

    reserved → creating → waiting_for_ssh → ready → releasing → released · refused

    At most one offer is being tried, and its row names it before anything is made there. Whatever
    happens then, the machine of that name is released at that place, and seen to be gone, before
    another offer is tried or the workflow ends.
    """

    @workflow.init
    def __init__(self, request: MachineRequest) -> None:
        carried = request.carried
        self._request = request
        self._journal = Journal(
            request.lease_id, request.account_id, carried.sequence if carried else request.sequence
        )
        self._status = carried.status if carried else LeaseStatus.RESERVED
        self._offer = carried.offer if carried else None
        self._seen = carried.seen if carried else None
        self._was_ready = carried.was_ready if carried else False
        self._given_back = carried.given_back if carried else None
        self._lost = carried.lost if carried else None
        self._earlier_microcredits = carried.earlier_microcredits if carried else 0
        """What the machines of earlier offers have cost that were not kept."""
        self._inbox = Inbox()
        self._silent = ""
        """Why its provider could not be asked the last time."""

    @workflow.run
    async def run(self, request: MachineRequest) -> MachineReport:
        try:
            if request.carried is None or self._status in _BEGINNINGS:
                await self._acquire()
            if self._status is LeaseStatus.READY and self._given_back is None:
                await self._serve()
        except (*EFFECT_FAILED, Interrupted, asyncio.CancelledError) as cause:
            self._note(cause)
        await undisturbed(self._release(), self._canceled_outside)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._report()

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _acquire(self) -> None:
        """The first offer that can be had. Raises: ApplicationError with every refusal."""
        asked = FindShortages(provider_id=self._request.provider_id)
        found = await self._unless_given_back(find_shortages(asked))
        shortages = {one.scope: one for one in found.shortages}
        refusals = []
        for offer in self._in_turn():
            self._must_have_time()
            refusal = self._refusal_before(offer, shortages) or await self._try(offer)
            if refusal is None:
                self._status = LeaseStatus.READY
                return
            refusals.append(f"{offer.scope}: {refusal}")
            await self._write(Event(type="lease.offer-refused", message=refusals[-1]))
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
        message = f"{offer.machine_type} in {offer.place or 'any place'} is asked for"
        await self._write(Event(type="lease.creating", message=message), is_another=is_another)
        try:
            await self._unless_given_back(self._make(offer))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            kind, reason = cause_of(failure)
            if kind in (REQUEST_REFUSED, HOST_KEY_MISMATCH):
                raise
        else:
            return None
        await undisturbed(self._give_up(), self._canceled_outside)
        if kind == CAPACITY_EXHAUSTED:
            await self._remember(offer.scope, reason)
        return reason

    async def _give_up(self) -> None:
        """Nothing of this offer is left, and what it has cost is kept."""
        ended = await self._end_it()
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
            await self._unless_given_back(remember_shortage(short))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            # The next one asks in vain once more, and that is all.
            workflow.logger.warning("a shortage is not remembered: %s", cause_of(failure)[1])

    async def _make(self, offer: MachineOffer) -> None:
        """Found or made; then it has an address and a key; then it answers with that key."""
        made = CreateMachine(**self._name, offer=offer, spec=self._request.spec)
        await self._see(await create_machine(made))
        seen = await await_machine(LookAtMachine(**self._name))
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
            await self._write(Event(type="lease.ready", message=f"answers at {self._where()}"))
        if not await self._tell_ready() and is_new:
            raise ApplicationError(f"{self._request.holder_id}, whom it is for, is not there")
        while not self._given_back:
            if workflow.info().is_continue_as_new_suggested() and not len(self._inbox):
                self._continue()
            left = self._must_have_time()
            await self._unless_given_back(self._inbox.wait(min(LOOK_INTERVAL, left)))
            self._must_have_time()
            await self._look()

    def _must_have_time(self) -> timedelta:
        """What is left of it. Raises: ApplicationError, when that is nothing."""
        left = self._request.deadline - workflow.now()
        if left <= timedelta(0):
            raise ApplicationError(f"its time is up: {self._request.deadline:%F %T} UTC")
        return left

    async def _look(self) -> None:
        """Raises: ApplicationError, when it is no more. Who cannot be asked has not ended it."""
        try:
            seen = await self._unless_given_back(look_at_machine(LookAtMachine(**self._name)))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            silent = f"its provider cannot be asked: {cause_of(failure)[1]}"
            if silent != self._silent:
                await self._write(Event(type="lease.not-seen", message=silent))
            self._silent = silent
            return
        self._silent = ""
        if seen.state not in (MachineState.RUNNING, MachineState.MAKING):
            raise ApplicationError(seen.reason or f"its provider says that it is {seen.state}")

    async def _release(self) -> None:
        """Nothing of it is left, and its provider has said so."""
        reason = self._reason()
        if self._offer is not None:
            await self._say_releasing(reason)
        if self._given_back is None or not self._given_back.by_holder:
            lost = self._lost or MachineLost(lease_id=self._request.lease_id, reason=reason)
            await self._tell(TellHolder(holder_id=self._request.holder_id, lost=lost))
        if self._offer is not None:
            self._seen = await self._end_it()
        is_refused = not self._was_ready and self._given_back is None
        self._status = LeaseStatus.REFUSED if is_refused else LeaseStatus.RELEASED
        await self._write(Event(type=f"lease.{self._status}", message=reason), reason=reason)

    async def _say_releasing(self, reason: str) -> None:
        if self._status is not LeaseStatus.RELEASING:
            self._status = LeaseStatus.RELEASING
            await self._write(Event(type="lease.releasing", message=reason), reason=reason)

    async def _end_it(self) -> MachineSeen:
        """Asked for until it is gone; a refusal is shown to people, and is asked again."""
        if self._seen is None:
            await self._glance()
        told = ""
        while True:
            try:
                gone = await release_machine(ReleaseMachine(**self._name))
                known = self._seen or gone
                ended_at = gone.ended_at or workflow.now()
                return known.model_copy(update={"state": gone.state, "ended_at": ended_at})
            except EFFECT_FAILED as failure:
                reason = f"it could not be ended and may still cost: {cause_of(failure)[1]}"
            if reason != told:
                await self._write(Event(type="lease.not-released", message=reason), reason=reason)
                told = reason
            await workflow.sleep(RELEASE_INTERVAL, summary="its release is asked for again")
            if (
                self._status is LeaseStatus.RELEASING
                and workflow.info().is_continue_as_new_suggested()
            ):
                self._continue()

    async def _glance(self) -> None:
        """Of a machine whose making went unanswered: since when, and how much, it costs."""
        try:
            seen = await glance_at_machine(LookAtMachine(**self._name))
        except EFFECT_FAILED as failure:
            message = f"what it has cost is not known: {cause_of(failure)[1]}"
            event = Event(type="lease.cost-unknown", message=message)
            await self._write(event, reason=self._journal.reason)
            return
        if seen.state is not MachineState.GONE:
            await self._see(seen)

    # ── messages ────────────────────────────────────────────────────────────────────────────

    @workflow.signal(description="The machine is not needed any more.")
    async def give_back(self, asked: GiveBack) -> None:
        """Written down at once: what is under way may go on for minutes, and be killed."""
        if self._given_back is None and not self._status.is_final:
            self._given_back = asked
            await self._say_releasing(asked.reason)

    @workflow.signal(description="Its region or provider is removed.")
    async def remove(self, removal: Removal) -> None:
        await self.give_back(GiveBack(reason=f"removed by {removal.requested_by or 'a person'}"))

    @workflow.signal(description="Its provider has news of it: look now.")
    def look(self) -> None:
        if not self._inbox.holds(Look):
            self._inbox.put(Look())

    @workflow.query(description="Status, reason, and what the provider says.")
    def status(self) -> MachineReport:
        return self._report()

    # ── plumbing ────────────────────────────────────────────────────────────────────────────

    def _note(self, cause: BaseException) -> None:
        if is_cancelled_exception(cause):
            self._canceled_outside()
        elif self._given_back is None:
            kind, reason = cause_of(cause)
            self._lost = MachineLost(
                lease_id=self._request.lease_id,
                reason=reason,
                capacity_exhausted=kind == CAPACITY_EXHAUSTED,
            )

    def _canceled_outside(self) -> None:
        self._given_back = self._given_back or CANCELED_OUTSIDE

    def _reason(self) -> str:
        if self._given_back is not None:
            return self._given_back.reason
        return self._lost.reason if self._lost else "its release goes on"

    async def _unless_given_back(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await unless(lambda: self._given_back is not None, work)

    async def _see(self, seen: MachineSeen) -> None:
        """What is known of it is written down before anything is waited for."""
        before = self._seen.began_at if self._seen else None
        began_at = seen.began_at or before or workflow.now()
        self._seen = seen.model_copy(update={"began_at": began_at})
        message = f"its provider says: {seen.state} {seen.provider_machine_id or ''}".rstrip()
        await self._write(Event(type="lease.seen", message=message))

    @property
    def _name(self) -> dict[str, Any]:
        request = self._request
        return {
            "lease_id": request.lease_id,
            "provider_id": request.provider_id,
            "provider_kind": request.provider_kind,
            "machine_name": request.machine_name,
            "place": self._offer.place if self._offer else "",
        }

    def _address(self, seen: MachineSeen) -> NodeAddress:
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
        ready = MachineReady(lease_id=self._request.lease_id, seen=self._seen, offer=self._offer)
        return await self._tell(TellHolder(holder_id=self._request.holder_id, ready=ready))

    async def _tell(self, told: TellHolder) -> bool:
        try:
            return (await tell_holder(told)).is_there
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            message = f"{told.holder_id} could not be told: {cause_of(failure)[1]}"
        event = Event(type="lease.holder-not-told", message=message)
        await self._write(event, reason=self._journal.reason)
        return True

    def _continue(self) -> None:
        carry = MachineCarry(
            sequence=self._journal.sequence,
            status=self._status,
            offer=self._offer,
            seen=self._seen,
            was_ready=self._was_ready,
            given_back=self._given_back,
            lost=self._lost,
            earlier_microcredits=self._earlier_microcredits,
        )
        workflow.continue_as_new(self._request.model_copy(update={"carried": carry}))

    async def _write(
        self, event: Event, *, reason: str | None = None, is_another: bool = False
    ) -> None:
        known: dict[str, Any] = {}
        if self._seen is not None:
            known = self._seen.model_dump(exclude={"state", "place", "reason"})
        changes = LeaseChanges(
            offer=self._offer,
            earlier_microcredits=self._earlier_microcredits,
            is_another=is_another,
            **known,
        )
        await self._journal.write(self._status, changes, event, reason=reason)

    def _report(self) -> MachineReport:
        return MachineReport(
            lease_id=self._request.lease_id,
            status=self._status,
            status_reason=self._journal.reason,
            seen=self._seen,
        )
