"""The machine of a lease: its offer, what the provider says of it, and its cost."""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import LeaseProgress, LeaseRequest
from workflows.contracts.machines import MachineNotification, MachineObservation, MachineOffer
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    DescribeMachine,
    wait_for_image_machine,
    wait_for_machine,
)
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.catalogue.providers import traits_of

AWAY_LIMIT = timedelta(minutes=10)
"""How long a machine of a marketplace may have no address, because its host is away."""
_ALIVE = (MachineState.RUNNING, MachineState.MAKING)


class Machine:
    """The machine of one offer at a time, and the cost of the machines of earlier offers."""

    def __init__(self, request: LeaseRequest, resumed_from: LeaseProgress | None) -> None:
        self._request = request
        self.offer = resumed_from.offer if resumed_from else None
        self.seen = resumed_from.seen if resumed_from else None
        """The last observation of a machine that existed."""
        self.is_lost_at_provider = bool(resumed_from and resumed_from.is_lost_at_provider)
        self.notification: MachineNotification | None = None
        """The provider's last notification, until a later poll finds the machine running."""
        self.runs_until = resumed_from.runs_until if resumed_from else None
        """Until when at most the machine runs, because its provider has begun to end it."""
        self.earlier_microcredits = resumed_from.earlier_microcredits if resumed_from else 0
        """The cost of the terminated machines of earlier offers."""
        self._away_since: datetime | None = None
        """Since when the provider has shown no address of a machine that serves; None: it has."""
        self._abandoned_microcredits = 0
        """The cost of the machine whose offer was abandoned, until another offer is tried."""
        self._earlier_ended_at: datetime | None = None
        """When the last of these machines ended."""

    @property
    def name(self) -> dict[str, Any]:
        """The fields by which an effect finds the machine at its provider."""
        request = self._request
        return {
            "lease_id": request.lease_id,
            "provider_id": request.provider_id,
            "provider_kind": request.provider_kind,
            "machine_name": request.machine_name,
            "zone": self.offer.zone if self.offer else "",
            "uses_internal_addresses": request.uses_internal_addresses,
        }

    @property
    def known_id(self) -> str | None:
        """The provider's id of the machine; None: the provider has not shown it yet."""
        return self.seen.provider_machine_id if self.seen else None

    @property
    def place(self) -> str:
        """The host and port at which the machine answers."""
        return "" if self.seen is None else f"{self.seen.host}:{self.seen.port}"

    @property
    def ended_at(self) -> datetime | None:
        """The earliest end of the machine that its provider has named; None: it has named none."""
        ends = [self.notification.at] if self.notification else []
        if self.seen is not None and self.seen.ended_at is not None:
            ends.append(self.seen.ended_at)
        return min(ends, default=None)

    def address(self, seen: MachineObservation) -> NodeAddress:
        """Where the observed machine is reached as the holder's."""
        return NodeAddress(
            node_id=self._request.holder_id,
            region_id=self._request.region_id,
            host=seen.host or "",
            port=seen.port,
            user=seen.user,
            minion_id=seen.minion_id or "",
            leased=True,
            has_own_key=self._request.spec.has_own_key,
            is_stated=traits_of(self._request.provider_kind).states_addresses,
            own_worker=self._request.own_worker,
        )

    async def wait(self) -> MachineObservation:
        """Wait until the machine is reachable, or will never be.

        Raises: ActivityError, also when it takes longer than machines of its provider kind do.
        """
        command = DescribeMachine(**self.name)
        if traits_of(self._request.provider_kind).machine_is_image:
            return await wait_for_image_machine(command)
        return await wait_for_machine(command)

    def try_offer(self, offer: MachineOffer) -> bool:
        """Go over to the machine of this offer, and return whether it is another one."""
        is_another = self.offer not in (None, offer)
        self.earlier_microcredits += self._abandoned_microcredits
        self._abandoned_microcredits = 0
        self.offer, self.seen = offer, None
        return is_another

    def take_notification(self, notification: MachineNotification) -> None:
        """Take what the provider has notified, unless it is about another machine."""
        if not self.known_id or notification.provider_machine_id in ("", self.known_id):
            self.notification = notification

    def observe(self, seen: MachineObservation) -> Event:
        """Take an observation, and return its event."""
        before = self.seen.began_at if self.seen else None
        assumed = None if seen.state is MachineState.MAKING else workflow.now()
        self.seen = seen.model_copy(update={"began_at": seen.began_at or before or assumed})
        return _event_of(seen)

    def begin_end(self, seen: MachineObservation) -> Event | None:
        """Take an observation of a machine that its provider is ending, on which commands run on
        meanwhile; its event, for the first of them."""
        if self.runs_until is not None:
            return None
        limit_s = traits_of(self._request.provider_kind).ending_limit_s
        self.runs_until = workflow.now() + timedelta(seconds=limit_s)
        return _event_of(seen)

    @property
    def has_run_out(self) -> bool:
        """Whether the machine has ended, although its provider may not have shown that yet."""
        return self.runs_until is not None and workflow.now() >= self.runs_until

    def unseen_end(self) -> str | None:
        """Why the machine is lost that cannot be observed; None: it is not."""
        if not self.has_run_out:
            return None
        self.is_lost_at_provider = True
        return self._reason_of_end(MachineObservation(state=MachineState.ENDING))

    def loss(self, seen: MachineObservation) -> str | None:
        """Why the machine that was observed is lost; None: it is not."""
        if seen.state not in _ALIVE:
            if self.seen is not None and seen.ended_at is not None:
                self.seen = self.seen.model_copy(update={"ended_at": seen.ended_at})
            self.is_lost_at_provider = True
            return self._reason_of_end(seen)
        self.runs_until = None
        if self.known_id and seen.provider_machine_id not in (None, self.known_id):
            self.is_lost_at_provider = True
            return f"{self.known_id} is gone, and another machine has its name"
        return None

    def absence(self, seen: MachineObservation) -> str | None:
        """Why the observed machine is given up, whose host is away for too long; None: it is not.

        Only marketplaces, which send no notifications, show such a machine as one that runs.
        """
        quiet = not traits_of(self._request.provider_kind).notifies
        if not quiet or seen.state is not MachineState.RUNNING or seen.host is not None:
            self._away_since = None
            return None
        self._away_since = self._away_since or workflow.now()
        if workflow.now() - self._away_since < AWAY_LIMIT:
            return None
        minutes = int(AWAY_LIMIT.total_seconds() // 60)
        return f"{seen.reason or 'it has no address any more'}, for {minutes} minutes"

    def ended(self, gone: MachineObservation) -> MachineObservation:
        """The last observation with the machine's end, by the provider's clock if it says when."""
        earlier = self._earlier_ended_at
        if earlier is not None and gone.began_at is not None and gone.began_at < earlier:
            gone = MachineObservation(state=gone.state)  # The machine of an earlier offer.
        known = self.seen or gone
        update = {
            "state": gone.state,
            "began_at": known.began_at or gone.began_at,
            "ended_at": gone.ended_at or known.ended_at or workflow.now(),
        }
        return known.model_copy(update=update)

    def abandon(self, ended: MachineObservation) -> None:
        """Take the end of the offer's machine; its cost is that of an earlier offer when another
        one is tried, and until then the lease's own."""
        self._earlier_ended_at = ended.ended_at
        self.is_lost_at_provider, self.notification = False, None
        if ended.began_at is not None and ended.ended_at is not None:
            seconds = int((ended.ended_at - ended.began_at).total_seconds())
            cost = cumulative_microcredits(self._price(), seconds)
            if self.seen is None:
                self.earlier_microcredits += cost
            else:
                self.seen, self._abandoned_microcredits = ended, cost

    def _price(self) -> int:
        """Microcredits per hour, by the provider if it says so, else by the offer."""
        seen = self.seen.microcredits_per_hour if self.seen else None
        return seen or (self.offer.microcredits_per_hour if self.offer else 0)

    def _reason_of_end(self, seen: MachineObservation) -> str:
        if self.notification is not None:
            return f"{self.notification.what} at {self.notification.at:%F %T} UTC"
        return seen.reason or f"the provider says that the machine is {seen.state}"


def _event_of(seen: MachineObservation) -> Event:
    message = f"the provider says: {seen.state} {seen.provider_machine_id or ''}".rstrip()
    return Event(type=LeaseEvent.SEEN, message=message)
