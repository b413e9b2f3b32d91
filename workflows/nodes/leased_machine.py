"""The leased machine of a node: acquired, awaited, lost and released through its lease."""

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.machines import MachineClaim, MachineOffer
from workflows.contracts.nodes import Hardware, NodeRequest
from workflows.effects.leases import (
    AcquireLease,
    LeaseAcquired,
    ReleaseLease,
    acquire_lease,
    release_lease,
)
from workflows.effects.machines import RememberShortage, remember_shortage
from workflows.hosts.location import HostLocation, refusal
from workflows.nodes.region import NodeRegion
from workflows.nodes.steps import NodeSteps
from workflows.primitives.failures import cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import LEASE_ID, Journal
from workflows.primitives.waiting import wait_until, with_watch
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.ids import timed_id
from workflows.rules.nodes.offered import distrusted_for, host_words
from workflows.rules.nodes.onboarding import TRIES, lacking_of

READY_LIMIT = timedelta(hours=6)
"""Longer than a lease needs to try all its offers; the lease signals the result itself."""
POLL_INTERVAL_MIN = timedelta(seconds=30)
POLL_INTERVAL_MAX = timedelta(minutes=10)
"""The first and the longest time between two polls of a lease's row, beside the lease's signals."""
REMEMBERS_HOSTS = "a-lying-host-is-remembered"
"""The patch since which a stranger's machine is compared with its offer once, and its host is not
rented from again for a while when it is another one."""
POLLS_LEASE = "an-offline-node-polls-its-lease"
"""The patch since which a node that cannot be reached asks whether its lease has ended."""
RELEASE_POLL_MIN = timedelta(seconds=1)
"""The first time between two polls during a release; short, because some clouds terminate a machine
at once."""
RELEASE_LIMIT = timedelta(hours=1)
"""How long a release takes before an event says that the machine is still not gone."""
RETRY_INTERVAL_MIN = timedelta(minutes=1)
RETRY_INTERVAL_MAX = timedelta(hours=1)
"""The first and the longest pause before a node that was in use claims another machine; each failed
try makes it four times longer."""


class MachineGoneError(Exception):
    """The leased machine of the node is gone; the message says why."""


class LeaseEndingError(Exception):
    """The lease of the node's machine ends as planned; the message says when."""


class LeasedMachine:
    """The leased machine of one node; a node with a machine of its own has no claim.

    region: of the node, which replaces its storage node before the lease ends.
    """

    def __init__(
        self,
        request: NodeRequest,
        location: HostLocation,
        journal: Journal,
        steps: NodeSteps,
        region: NodeRegion,
    ) -> None:
        self._request = request
        self._location = location
        self._journal = journal
        self._steps = steps
        self._region = region
        self._claim: MachineClaim | None = request.machine
        self.lease_id = request.resumed_from.lease_id if request.resumed_from else ""
        self.offer: MachineOffer | None = None
        """The machine offer of the ready machine; None: no machine is ready."""
        self._recorded_lease = ""
        """The lease for which the event is recorded."""
        self.ending: str | None = None
        """Why the lease ends as planned; None: no end is near."""
        self.lost: str | None = None
        """Why the machine is lost; None: it is not."""
        self.ended_at: datetime | None = None
        """When the lost machine ended, if its provider says so."""
        self.is_killed = False
        """Whether a person ended the machine, so that its jobs do not restart on other machines."""
        self.is_violation = False
        """Whether the machine is lost because it has broken the agent's protocol."""
        self.releasing = request.resumed_from.releasing if request.resumed_from else None
        """Why the leases are being released; None: they are not."""
        self.tries_left = request.resumed_from.tries_left if request.resumed_from else 0

    @property
    def is_claimed(self) -> bool:
        return self._claim is not None

    def serves(self) -> None:
        """Allow tries for another machine, because the node has become ready for jobs."""
        self.tries_left = TRIES

    def pause(self) -> timedelta | None:
        """The pause before the next try for a machine; None: no try is left.

        A try after the planned end of a lease does not wait and does not count.
        """
        if self.ending is not None and not self.is_killed:
            return timedelta(0)
        if not self.tries_left:
            return None
        self.tries_left -= 1
        return self.present_pause()

    def present_pause(self) -> timedelta:
        """The pause of the present try, which an earlier workflow run may have begun."""
        growth: int = 4 ** max(0, TRIES - 1 - self.tries_left)
        return min(RETRY_INTERVAL_MIN * growth, RETRY_INTERVAL_MAX)

    # ── acquire ─────────────────────────────────────────────────────────────────────────────

    async def acquire(self, inbox: Inbox) -> None:
        """Acquire a machine if the node claims one, and take over its location.

        Raises: ApplicationError `Refused`, when the lease ends or the limit passes first.
        """
        if self._claim is None:
            return
        self.lost = self.ending = self.ended_at = None
        self.is_violation = False
        self.lease_id = self.lease_id or timed_id("lea", workflow.now(), workflow.uuid4())
        deadline, pause = workflow.now() + READY_LIMIT, POLL_INTERVAL_MIN
        while (ready := await self._ready(self._claim)) is None:
            if workflow.now() >= deadline:
                raise refusal(self._request, f"its machine is not ready after {READY_LIMIT}")
            if await wait_until(partial(inbox.holds, MachineReady), pause, "the machine is made"):
                ready = self._take_ready(inbox)
            if ready is not None:
                break
            pause = min(2 * pause, POLL_INTERVAL_MAX)
            await self._journal.continue_when_long()
        self.offer = ready.offer
        self._location.replace_machine(ready.seen)

    async def _ready(self, claim: MachineClaim) -> MachineReady | None:
        """Acquire or poll the lease; None: not ready yet.

        Raises: ApplicationError `Refused`, when the lease has ended.
        """
        leased = await self._acquire(claim)
        self.lease_id = leased.lease_id
        if self._recorded_lease != self.lease_id:
            self._recorded_lease = self.lease_id
            workflow.upsert_search_attributes([LEASE_ID.value_set(self.lease_id)])
            await self._steps.record_event(
                Event(type=NodeEvent.LEASED, message=f"{self.lease_id} leases its machine")
            )
        if leased.status.is_final:
            raise refusal(self._request, leased.reason or f"its lease is {leased.status}")
        return leased.ready

    async def _acquire(self, claim: MachineClaim, *, is_unreachable: bool = False) -> LeaseAcquired:
        return await acquire_lease.run_locally(
            AcquireLease(
                lease_id=self.lease_id,
                node_id=self._request.node_id,
                region_id=self._request.region_id,
                machine=claim,
                at=workflow.now(),
                is_unreachable=is_unreachable,
            )
        )

    def _take_ready(self, inbox: Inbox) -> MachineReady | None:
        """Take the signal of the node's lease out of the inbox, and drop those of older leases."""
        while (ready := inbox.pick(MachineReady)) is not None:
            if ready.lease_id == self.lease_id:
                return ready
        return None

    def lacking(self, hardware: Hardware) -> str:
        """What the machine was created with and does not have; empty: nothing is lacking."""
        if self.offer is None or self._claim is None:
            return ""
        return lacking_of(self.offer, self._claim.spec, hardware)

    @property
    def is_probed(self) -> bool:
        """Whether the machine is compared with its offer once, and its host is remembered if it is
        another one: a container has at its start all that it will ever have."""
        kind = self._claim.provider_kind if self._claim else ""
        return traits_of(kind).is_of_strangers and workflow.patched(REMEMBERS_HOSTS)

    async def distrust(self, lacks: str) -> None:
        """Remember for all jobs that the host's machine was not what it offered, so that it is not
        rented again for a while.

        lacks: what the machine does not have.
        """
        if self.offer is None or self._claim is None:
            return
        kept, words = distrusted_for(self.offer), host_words(self.offer)
        result = f"not rented before {workflow.now() + kept:%F %T} UTC"
        reason = f"its machine was not what was offered: {lacks}"
        command = RememberShortage(
            provider_id=self._claim.provider_id,
            scope=self.offer.host_scope,
            reason=f"{words}: {reason}",
            kept_s=int(kept.total_seconds()),
        )
        try:
            await remember_shortage(command)
        except ActivityError as failure:
            if is_cancelled_exception(failure):
                raise
            # The next job may rent it in vain again, which does no other harm.
            workflow.logger.warning("a host was not remembered: %s", cause_of(failure)[1])
            result = "could not be remembered"
        message = f"{words} of {self._claim.provider_kind}: {reason}; {result}"
        await self._steps.record_event(Event(type=NodeEvent.HOST_DISTRUSTED, message=message))

    async def hold_while(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work` on the unreachable machine while the node's lease holds that machine.

        The row of the lease is polled, because nobody notifies the node of a release that an
        earlier workflow run of the node has asked for.

        Raises: MachineGoneError, when the lease has ended; the failure of the work.
        """
        if self._claim is None or not self.lease_id or not workflow.patched(POLLS_LEASE):
            await work
            return
        await with_watch(work, self._watch_lease(self._claim))

    async def _watch_lease(self, claim: MachineClaim) -> None:
        """Poll the lease, and have it poll its provider, until its machine is gone.

        Raises: MachineGoneError.
        """
        pause = POLL_INTERVAL_MIN
        while True:
            await workflow.sleep(pause, summary="does the lease hold the machine?")
            leased = await self._acquire(claim, is_unreachable=True)
            if leased.lease_id == self.lease_id and leased.status.is_final:
                self.lost = f"{self.lease_id} is {leased.status}: {leased.reason}"
                raise self.loss()
            pause = min(2 * pause, POLL_INTERVAL_MAX)

    # ── lose and release ────────────────────────────────────────────────────────────────────

    def is_to_end(self, ending: LeaseEnding) -> bool:
        """Record that the lease ends as planned. False: the message repeats an earlier one, or is
        about another lease."""
        is_news = ending.lease_id == self.lease_id and self.ending is None
        if is_news:
            self.ending = ending.reason
        return is_news

    async def leave_before(self, ending: LeaseEnding) -> None:
        """Leave the machine before the end of its lease; the region replaces its storage node.

        Raises: LeaseEndingError, unless the region removes the node when another one serves.
        """
        if "storage" not in self._request.services:
            raise LeaseEndingError(ending.reason)
        message = f"{ending.reason}; its region is asked for another storage node"
        await self._steps.record_event(Event(type=NodeEvent.MACHINE_ENDING, message=message))
        await self._region.ask_for_replacement()

    def concerns(self, lost: MachineLost) -> bool:
        """Record a loss of the node's machine, and return whether the machine is lost."""
        if lost.lease_id == self.lease_id:
            self.lost, self.ended_at = lost.reason, lost.ended_at
            self.tries_left = 0 if lost.by_person else self.tries_left
            self.is_killed = lost.by_person
        return self.lost is not None

    def is_lost(self, inbox: Inbox) -> bool:
        """Whether the machine is lost; takes losses out of the inbox ahead of other messages."""
        while (lost := inbox.pick(MachineLost)) is not None:
            self.concerns(lost)
        return self.lost is not None

    def lose_for(self, violation: str) -> None:
        """Record that the machine has broken the protocol; only a person gets the node another."""
        self.lost, self.ended_at = violation, workflow.now()
        self.is_violation, self.ending, self.tries_left = True, None, 0

    def loss(self) -> MachineGoneError:
        return MachineGoneError(self.lost or "its machine is gone")

    def progress(self) -> dict[str, Any]:
        """What the next workflow run of the node must know of its machine."""
        return {
            "lease_id": self.lease_id,
            "tries_left": self.tries_left,
            "lost": self._progress_of_loss(),
            "releasing": self.releasing,
        }

    def _progress_of_loss(self) -> MachineLost | None:
        if self.lost is None:
            return None
        return MachineLost(
            lease_id=self.lease_id,
            reason=self.lost,
            by_person=self.is_killed,
            ended_at=self.ended_at,
        )

    async def wait_for_next(
        self, pause: timedelta | None, activation: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Wait for the next try for a machine; after the last try, for a person.

        pause: before the next try; None: no try is left, so a person activates the node.
        activation: waits until a person activates the node.
        """
        if pause is not None:
            await workflow.sleep(pause, summary="before the next machine")
            return
        await activation()

    async def release(self, reason: str) -> None:
        """Release all leases of the node, and wait until their machines are gone."""
        is_recorded, pause, self.releasing = False, RELEASE_POLL_MIN, reason
        deadline = workflow.now() + RELEASE_LIMIT
        while left := await self._released(reason):
            if not is_recorded and workflow.now() >= deadline:
                is_recorded = True
                message = (
                    f"the machine of {', '.join(left)} is not gone after {RELEASE_LIMIT} "
                    "and may still cost money"
                )
                await self._steps.record_event(
                    Event(type=NodeEvent.MACHINE_NOT_GONE, message=message)
                )
            await workflow.sleep(pause, summary="the machine is terminated")
            pause = min(2 * pause, POLL_INTERVAL_MAX)
            await self._journal.continue_when_long()
        if self.lease_id:
            workflow.upsert_search_attributes([LEASE_ID.value_unset()])
        self.lease_id, self.lost, self.ending, self.releasing = "", None, None, None

    async def _released(self, reason: str) -> tuple[str, ...]:
        node_id = self._request.node_id
        command = ReleaseLease(
            node_id=node_id, reason=reason, at=workflow.now(), sequence=self._journal.sequence
        )
        released = await release_lease(command)
        await self._journal.stop_if_behind(released.sequence)
        return released.left
