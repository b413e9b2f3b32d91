"""The machine of a node that has none of its own: leased, waited for, lost, given back."""

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.leases import MachineLost, MachineReady
from workflows.contracts.machines import MachineClaim, MachineOffer
from workflows.contracts.nodes import Activate, Hardware, NodeRequest
from workflows.effects.leases import (
    AcquireLease,
    LeaseAcquired,
    ReleaseLease,
    acquire_lease,
    release_lease,
)
from workflows.effects.placement import WithdrawAllocations, withdraw_allocations
from workflows.nodes.location import NodeLocation, refusal
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import EventWriter, Journal
from workflows.primitives.waiting import wait_until
from workflows.rules.ids import timed_id
from workflows.rules.nodes.onboarding import lacking_of

READY_LIMIT = timedelta(hours=6)
"""Beyond what a lease takes to try all of its offers: it tells by itself how that has ended."""
POLL_INTERVAL_MIN = timedelta(seconds=30)
POLL_INTERVAL_MAX = timedelta(minutes=10)
"""Between two looks at the row of a lease, of which signals tell: at first, and in the end."""
FIRST_RETURN = timedelta(seconds=1)
"""A cloud that ends a machine in a moment is not waited for longer than that."""
IDLE_INTERVAL = timedelta(days=30)
PATIENCE = timedelta(hours=1)
"""After which people are told that a machine is still not gone."""
FIRST_PAUSE = timedelta(minutes=1)
LAST_PAUSE = timedelta(hours=1)
"""Before a node that was in use is given another machine: at first, and each time that there was
none for it."""
TRIES = 12


class MachineGoneError(Exception):
    """Its machine is no more, and why."""


class LeasedMachine:
    """Nothing here is asked for where a node has a machine of its own.

    record_event: records an event that leaves the node's status as it is.
    """

    def __init__(
        self,
        request: NodeRequest,
        at: NodeLocation,
        journal: Journal,
        record_event: EventWriter,
    ) -> None:
        self._request = request
        self._location = at
        self._journal = journal
        self._record_event = record_event
        self._claim: MachineClaim | None = request.machine
        self.lease_id = request.resumed_from.lease_id if request.resumed_from else ""
        self.offer: MachineOffer | None = None
        """What it was made as, once it was."""
        self._told_of = ""
        """The lease that people were told of."""
        self._lost: str | None = None
        self.ended_at: datetime | None = None
        """When the one that it has lost has ended, where its provider says so."""
        self.is_killed = False
        """A person has ended it: what ran there is not begun again elsewhere."""
        self._tries_left = TRIES if request.resumed_from else 0

    @property
    def is_wished_for(self) -> bool:
        return self._claim is not None

    def serves(self) -> None:
        """It has become a node: when it is lost there is time for another one."""
        self._tries_left = TRIES

    def pause(self) -> timedelta | None:
        """Before the next try; None: there is none."""
        if not self._tries_left:
            return None
        self._tries_left -= 1
        growth: int = 4 ** (TRIES - 1 - self._tries_left)
        return min(FIRST_PAUSE * growth, LAST_PAUSE)

    # ── to have one ─────────────────────────────────────────────────────────────────────────

    async def have(self, inbox: Inbox) -> None:
        """It answers, and the node is where it is. Raises: ApplicationError, when there is none."""
        if self._claim is None:
            return
        self._lost = self.ended_at = None
        self.lease_id = self.lease_id or timed_id("lea", workflow.now(), workflow.uuid4())
        deadline, pause = workflow.now() + READY_LIMIT, POLL_INTERVAL_MIN
        while (ready := await self._ready(self._claim)) is None:
            if workflow.now() >= deadline:
                raise refusal(self._request, f"its machine is not there after {READY_LIMIT}")
            if await wait_until(partial(inbox.holds, MachineReady), pause, "its machine is made"):
                ready = self._told(inbox)
            if ready is not None:
                break
            pause = min(2 * pause, POLL_INTERVAL_MAX)
        self.offer = ready.offer
        self._location.replace_machine(ready.seen)

    async def _ready(self, claim: MachineClaim) -> MachineReady | None:
        """As the row of its lease says. Raises: ApplicationError, when that has ended."""
        leased = await self._lease(claim)
        self.lease_id = leased.lease_id
        if self._told_of != self.lease_id:
            self._told_of = self.lease_id
            await self._record_event(
                Event(type=NodeEvent.LEASED, message=f"its machine is that of {self.lease_id}")
            )
        if leased.status.is_final:
            raise refusal(self._request, leased.reason or f"its lease is {leased.status}")
        return leased.ready

    async def _lease(self, claim: MachineClaim) -> LeaseAcquired:
        return await acquire_lease.run_locally(
            AcquireLease(
                lease_id=self.lease_id,
                node_id=self._request.node_id,
                region_id=self._request.region_id,
                machine=claim,
                at=workflow.now(),
            )
        )

    def _told(self, inbox: Inbox) -> MachineReady | None:
        """What its lease has said; what an older one had said is passed over."""
        while (told := inbox.pick(MachineReady)) is not None:
            if told.lease_id == self.lease_id:
                return told
        return None

    def lacking(self, hardware: Hardware) -> str:
        """What it was made with and does not show; empty when that is all there."""
        if self.offer is None or self._claim is None:
            return ""
        return lacking_of(self.offer, self._claim.spec, hardware)

    # ── to have had one ─────────────────────────────────────────────────────────────────────

    def concerns(self, lost: MachineLost) -> bool:
        """Whether that was its machine; it is remembered."""
        if lost.lease_id == self.lease_id:
            self._lost, self.ended_at = lost.reason, lost.ended_at
            self._tries_left = 0 if lost.by_person else self._tries_left
            self.is_killed = lost.by_person
        return self._lost is not None

    def is_lost(self, inbox: Inbox) -> bool:
        """Take the loss of its machine out of the inbox, ahead of everything else."""
        while (lost := inbox.pick(MachineLost)) is not None:
            self.concerns(lost)
        return self._lost is not None

    def loss(self) -> MachineGoneError:
        return MachineGoneError(self._lost or "its machine is gone")

    async def withdraw_allocations(self, reason: str) -> None:
        """Jobs that were never told of their places here are placed anew, and say why."""
        if self._claim is None:
            return
        node_id = self._request.node_id
        await withdraw_allocations(
            WithdrawAllocations(node_id=node_id, reason=reason, at=workflow.now())
        )

    async def go_without(self, reason: str, pause: timedelta | None, inbox: Inbox) -> None:
        """Nothing of it is left, and it is time for the next; else a person says when."""
        await self.give_back(reason)
        if pause is not None:
            await workflow.sleep(pause, summary="before the next machine")
            return
        asked = partial(inbox.holds, Activate)
        while not await wait_until(asked, IDLE_INTERVAL, "until a person wants another machine"):
            continue
        while inbox.pick(Activate) is not None:
            continue

    async def give_back(self, reason: str) -> None:
        """Until nothing of it is left, as the rows of its leases say."""
        told, pause = False, FIRST_RETURN
        impatient_at = workflow.now() + PATIENCE
        while left := await self._returned(reason):
            if not told and workflow.now() >= impatient_at:
                told = True
                message = f"the machine of {', '.join(left)} is not gone after {PATIENCE}"
                await self._record_event(Event(type=NodeEvent.MACHINE_NOT_GONE, message=message))
            await workflow.sleep(pause, summary="its machine ends")
            pause = min(2 * pause, POLL_INTERVAL_MAX)
        self.lease_id, self._lost = "", None

    async def _returned(self, reason: str) -> tuple[str, ...]:
        node_id = self._request.node_id
        command = ReleaseLease(
            node_id=node_id, reason=reason, at=workflow.now(), sequence=self._journal.sequence
        )
        returned = await release_lease(command)
        self._journal.sequence = max(self._journal.sequence, returned.sequence)
        return returned.left
