"""A provider of machines in the tests' world: it keeps what it has made, and what it costs."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.machines import MachineObservation, Shortage
from workflows.contracts.statuses import MachineState
from workflows.effects import housekeeping, leases, providers, sessions
from workflows.effects import machines as machine

PRICE_MICROCREDITS = 1_000_000
HOST_KEY = "SHA256:key"
LISTENING_S = 0.05
"""As long as nothing comes."""


@dataclass
class Cloud:
    """Machines by (name, place); `made` counts how often each was made, ended or not."""

    machines: dict[tuple[str, str], MachineObservation] = field(default_factory=dict)
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    short: set[str] = field(default_factory=set)
    """Places that have none left."""
    silent: set[str] = field(default_factory=set)
    """Places whose machines never get an address."""
    price_microcredits: int = PRICE_MICROCREDITS
    began_at: datetime | None = None
    """Since when its machines cost; None: since they were made."""
    remembered: dict[str, str] = field(default_factory=dict)
    """Scope to reason, of what was not to be had."""
    ready: list[MachineReady] = field(default_factory=list)
    ending: list[LeaseEnding] = field(default_factory=list)
    lost: list[MachineLost] = field(default_factory=list)
    holder_has_ended: bool = False
    stray: set[str] = field(default_factory=set)
    """Machines that no lease holds, by name."""
    swept: Counter[str] = field(default_factory=Counter)
    untold_prices: set[str] = field(default_factory=set)
    """What the cloud charges otherwise than is known."""
    known_prices: set[str] = field(default_factory=set)
    untold_offers: set[str] = field(default_factory=set)
    """What a marketplace offers otherwise than is known."""
    known_offers: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    """Uploads whose retention has passed."""
    removed: set[str] = field(default_factory=set)
    trunks: set[str] = field(default_factory=set)
    """Runs whose site has connected to an API process."""
    unknown: set[str] = field(default_factory=set)
    """Machines with a provider's mark that no lease names, by name."""
    followed: Counter[str] = field(default_factory=Counter)
    """Providers whose news was asked to be followed."""
    subscription_is_lost: bool = False
    provider_is_gone: bool = False
    listened: int = 0
    news_states: list[str] = field(default_factory=list)
    """What the provider was told of its news, in order; empty: it comes."""

    gone: dict[tuple[str, str], MachineObservation] = field(default_factory=dict)
    """The last that was ended of each name and place."""
    ended_at: datetime | None = None
    """When its machines end; None: when they are seen to have."""

    def end(self, name: str) -> None:
        """As its provider does it, without being asked."""
        self.machines = {key: seen for key, seen in self.machines.items() if key[0] != name}


class RentedMachines:
    """The effects of machines, on the cloud of a world."""

    cloud: Cloud

    def is_ahead(self, resource_id: str, sequence: int) -> bool:
        """Whether the row has a later step than a command comes from; 0: that does not say."""
        raise NotImplementedError

    def refresh_prices(self, _: providers.RefreshPrices) -> providers.PricesRefreshed:
        kept = len(self.cloud.untold_prices)
        self.cloud.known_prices |= self.cloud.untold_prices
        self.cloud.untold_prices = set()
        return providers.PricesRefreshed(kept=kept)

    def refresh_offers(self, _: providers.RefreshOffers) -> providers.OffersRefreshed:
        self.cloud.known_offers |= self.cloud.untold_offers
        self.cloud.untold_offers = set()
        return providers.OffersRefreshed(kept=len(self.cloud.known_offers))

    def remove_expired(self, _: housekeeping.RemoveExpired) -> housekeeping.ExpiredRemoved:
        found, self.cloud.expired = self.cloud.expired, set()
        self.cloud.removed |= found
        return housekeeping.ExpiredRemoved(uploads=len(found))

    def open_trunk(self, asked: sessions.OpenTrunk) -> sessions.TrunkOpened:
        self.cloud.trunks.add(asked.run_id)
        return sessions.TrunkOpened()

    def create_machine(self, asked: machine.CreateMachine) -> MachineObservation:
        key = (asked.machine_name, asked.offer.zone)
        if self.is_ahead(asked.lease_id, asked.sequence):
            raise ApplicationError("its row is ahead", type=errors.STALE, non_retryable=True)
        if key in self.cloud.machines:
            return self.cloud.machines[key]
        if asked.offer.zone in self.cloud.short:
            raise ApplicationError(
                f"{asked.offer.zone} has none left", type=errors.CAPACITY_EXHAUSTED
            )
        self.cloud.made[key] += 1
        is_silent = asked.offer.zone in self.cloud.silent
        self.cloud.machines[key] = MachineObservation(
            state=MachineState.RUNNING,
            zone=asked.offer.zone,
            provider_machine_id=f"vm-{sum(self.cloud.made.values())}",
            host=None if is_silent else "10.0.0.1",
            minion_id=None if is_silent else HOST_KEY,
            microcredits_per_hour=self.cloud.price_microcredits,
            began_at=self.cloud.began_at or datetime.now(UTC),
            offer_label=asked.offer.label,
        )
        return self.cloud.machines[key]

    def describe_machine(self, asked: machine.DescribeMachine) -> MachineObservation:
        gone = MachineObservation(state=MachineState.GONE)
        return self.cloud.machines.get((asked.machine_name, asked.zone), gone)

    def wait_for_machine(self, asked: machine.DescribeMachine) -> MachineObservation:
        seen = self.describe_machine(asked)
        if seen.state is MachineState.RUNNING and not seen.is_reachable:
            raise ApplicationError(f"{asked.machine_name}: no address yet", type=errors.NOT_YET)
        return seen

    def terminate_machine(self, asked: machine.TerminateMachine) -> MachineObservation:
        key = (asked.machine_name, asked.zone)
        if self.is_ahead(asked.lease_id, asked.sequence):
            raise ApplicationError("its row is ahead", type=errors.STALE, non_retryable=True)
        if (ended := self.cloud.machines.pop(key, None)) is not None:
            self.cloud.gone[key] = ended
        if asked.was_unseen and key in self.cloud.gone:
            began_at = self.cloud.gone[key].began_at
            return MachineObservation(
                state=MachineState.GONE, began_at=began_at, ended_at=self.cloud.ended_at
            )
        return MachineObservation(state=MachineState.GONE, ended_at=self.cloud.ended_at)

    def list_owned_machines(self, _: providers.ListOwnedMachines) -> providers.OwnedMachinesListed:
        made = {name for name, _ in self.cloud.machines}
        return providers.OwnedMachinesListed(names=tuple(sorted(made | self.cloud.unknown)))

    def terminate_orphaned_machine(
        self, asked: machine.TerminateOrphanedMachine
    ) -> MachineObservation:
        self.cloud.unknown.discard(asked.machine_name)
        return MachineObservation(state=MachineState.GONE)

    def start_notifications(self, asked: providers.StartNotifications) -> Done:
        self.cloud.followed[asked.provider_id] += 1
        return Done()

    async def receive_notifications(
        self, _: providers.ReceiveNotifications
    ) -> providers.NotificationsReceived:
        if self.cloud.provider_is_gone:
            return providers.NotificationsReceived(is_over=True)
        if self.cloud.subscription_is_lost:
            raise ApplicationError("no such subscription", type=errors.REQUEST_REFUSED)
        self.cloud.listened += 1
        await asyncio.sleep(LISTENING_S)
        return providers.NotificationsReceived()

    def report_feed_status(self, asked: providers.ReportFeedStatus) -> Done:
        self.cloud.news_states.append(asked.state.feed_error)
        return Done()

    def find_shortages(self, _: machine.FindShortages) -> machine.ShortagesFound:
        until = datetime(2100, 1, 1, tzinfo=UTC)
        known = self.cloud.remembered.items()
        found = [Shortage(scope=scope, reason=reason, until=until) for scope, reason in known]
        return machine.ShortagesFound(shortages=tuple(found))

    def remember_shortage(self, asked: machine.RememberShortage) -> Done:
        self.cloud.remembered[asked.scope] = asked.reason
        return Done()

    def notify_holder(self, asked: leases.NotifyHolder) -> leases.HolderNotified:
        if asked.ready is not None:
            self.cloud.ready.append(asked.ready)
        if asked.ending is not None:
            self.cloud.ending.append(asked.ending)
        if asked.lost is not None:
            self.cloud.lost.append(asked.lost)
        return leases.HolderNotified(is_there=not self.cloud.holder_has_ended)
