"""The lives of the loops that are always there: placement, starts, the sweep."""

from datetime import UTC, datetime
from typing import ClassVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.failure.fake_effects import FaultedWorld
from tests.failure.pairs import Pair
from tests.failure.stories.story import HARMLESS, Story
from tests.workflows.fake_machines import node_address
from workflows.billing.balance_guard import BalanceGuard
from workflows.billing.device_fees import DeviceFees
from workflows.billing.payouts import Payouts
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.providers import NotificationsRequest
from workflows.contracts.schedules import (
    BalanceGuardRequest,
    DeviceFeesRequest,
    PayoutsRequest,
    ReconciliationRequest,
)
from workflows.contracts.statuses import JobStatus, ProviderKind
from workflows.effects.sessions import OpenTrunk
from workflows.placement.loop import PlacementLoop
from workflows.providers.notifications import ProviderNotifications
from workflows.providers.offer_refresh import OfferRefresh
from workflows.providers.price_refresh import PriceRefresh
from workflows.reconciliation.reconcilers import (
    Housekeeping,
    LifecycleReconciliation,
    OutboxRelay,
)
from workflows.rules.billing.utc_days import DAY, last_closed_day
from workflows.sessions.trunk_opening import TrunkOpening


class LoopStory(Story):
    """Work comes twice: before the fault, and after it."""

    first: tuple[str, ...] = ("job-a", "job-b")
    later = "job-c"

    @property
    def workflow_id(self) -> str:
        return f"{self.lifecycle.lower()}/{self.name}"

    async def begin(self) -> None:
        for job_id in self.first:
            self.add(job_id)
        await self.start_it()

    async def step(self) -> bool:
        if self.has_ended():  # the worker starts it again with itself, the schedule in its time
            await self.start_it()
        if not (self.is_struck and all(self.is_served(job_id) for job_id in self.first)):
            return False
        if not self.asked:
            self.asked = True
            self.add(self.later)
            await self.hint()
        if not self.is_served(self.later):
            return False
        await self.finish()
        return True

    async def finish(self) -> None:
        """A loop has no end of its own; the sweep has, and so has one that was canceled."""
        if self.end is None or self.end.done():
            return
        try:
            await self.client.get_workflow_handle(self.workflow_id).terminate("the story is over")
        except RPCError as cause:  # it has just ended, and nobody has told us yet
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def start_it(self) -> None:
        raise NotImplementedError

    def add(self, job_id: str) -> None:
        raise NotImplementedError

    def is_served(self, job_id: str) -> bool:
        raise NotImplementedError

    async def hint(self) -> None:
        """That there is work."""


class PlacementStory(LoopStory):
    lifecycle = "Placement"

    async def start_it(self) -> None:
        await self.start(PlacementLoop, PlacementRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.rows[job_id] = Record(
            resource_id=job_id,
            account_id="acc-1",
            sequence=1,
            at=datetime.now(UTC),
            status=JobStatus.WAITING_FOR_RESOURCES,
            changes=JobChanges(attempt=1),
        )

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.announced

    async def hint(self) -> None:
        await self.signal(self.workflow_id, "wake")

    def look(self) -> None:
        self.expect(self.world.announced == self.world.held, "told of places that are not held")
        self.look_at_the_cause()


class StartsStory(LoopStory):
    lifecycle = "OutboxRelay"

    async def start_it(self) -> None:
        await self.start(OutboxRelay, ReconciliationRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.undelivered.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.delivered

    def look(self) -> None:
        twice = [name for name, times in self.world.delivered.items() if times > 1]
        self.expect(not twice, f"delivered twice: {twice}")
        self.look_at_the_cause()


class SweepStory(LoopStory):
    lifecycle = "LifecycleReconciliation"

    async def start_it(self) -> None:
        await self.start(LifecycleReconciliation, ReconciliationRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.lost_rows.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.restarted

    def look(self) -> None:
        twice = [name for name, times in self.world.restarted.items() if times > 1]
        self.expect(not twice, f"started again twice: {twice}")
        self.look_at_the_cause()


class NewsStory(LoopStory):
    """A provider's news: heard, lost with its subscription, heard again; over with the provider."""

    lifecycle = "ProviderNotifications"
    silent: ClassVar = {"report_feed_status": "it is tried again with the next look at the news"}

    async def begin(self) -> None:
        await self.start_it()

    async def start_it(self) -> None:
        request = NotificationsRequest(provider_id="prv-1", kind=ProviderKind.GCP)
        await self.start(ProviderNotifications, request, self.workflow_id)

    async def step(self) -> bool:
        cloud = self.world.cloud
        if self.has_ended():
            if cloud.provider_is_gone:
                return True
            await self.start_it()  # as the sweep does
        if cloud.listened and not self.asked:
            self.asked = cloud.subscription_is_lost = True
        if cloud.subscription_is_lost and (any(cloud.news_states) or self._broke_telling()):
            cloud.subscription_is_lost, cloud.listened = False, 0
        if self.asked and not cloud.subscription_is_lost and cloud.listened and self._has_told():
            cloud.provider_is_gone = True
        return False

    def _has_told(self) -> bool:
        """That it hears again; where that is what breaks, it has broken."""
        told = self.world.cloud.news_states[-1:] == [""] and any(self.world.cloud.news_states)
        return self.is_struck and (told or self._broke_telling())

    def _broke_telling(self) -> bool:
        return self.stub == "report_feed_status" and self.is_struck and self.mode not in HARMLESS

    async def cancel(self) -> None:
        self.world.cloud.provider_is_gone = True

    def look(self) -> None:
        if self.mode in HARMLESS:
            told = self.world.cloud.news_states
            self.expect(any(told), "nobody was told that nothing is heard")
            self.expect(not told or not told[-1], f"at last it was told {told[-1:]}")
        self.world.said += self.world.cloud.news_states  # the provider shows them
        self.look_at_the_cause()


class HousekeepingStory(LoopStory):
    lifecycle = "Housekeeping"

    async def start_it(self) -> None:
        await self.start(Housekeeping, ReconciliationRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.cloud.expired.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.cloud.removed


class DailyStory(LoopStory):
    """A workflow whose run does its work at once, and then sleeps until the next day."""

    effect_of_the_day: Pair
    days = 0

    async def step(self) -> bool:
        if not self.is_struck and self.world.done[self.effect_of_the_day] > self.days:
            await self.next_day()
        return await super().step()

    async def next_day(self) -> None:
        """Its next run, which begins as it does when it was lost."""
        self.days += 1
        await self.finish()
        await self.start_it()

    async def hint(self) -> None:
        await self.next_day()


class DeviceFeesStory(DailyStory):
    """Devices of two days are charged before the fault, and those of another one after it."""

    lifecycle = "DeviceFees"
    effect_of_the_day = Pair("DeviceFees", "charge_device_days")

    async def start_it(self) -> None:
        await self.start(DeviceFees, DeviceFeesRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        """One more day that is not charged, earlier than all others."""
        first = self.world.first_device_day or last_closed_day(datetime.now(UTC))
        self.world.first_device_day = first - DAY

    def is_served(self, job_id: str) -> bool:
        return self.world.first_device_day in self.world.device_days

    def look(self) -> None:
        twice = [day for day, times in self.world.device_days.items() if times > 1]
        self.expect(not twice, f"charged twice: {twice}")
        self.look_at_the_cause()


class PayoutsStory(DailyStory):
    """Each payout is of a period of its own."""

    lifecycle = "Payouts"
    effect_of_the_day = Pair("Payouts", "pay_out")

    async def start_it(self) -> None:
        await self.start(Payouts, PayoutsRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.unpaid.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.paid

    async def next_day(self) -> None:
        self.world.payout_days.clear()
        await super().next_day()

    def look(self) -> None:
        twice = [name for name, times in self.world.paid.items() if times > 1]
        self.expect(not twice, f"paid out twice: {twice}")
        self.look_at_the_cause()


class BalanceGuardStory(DailyStory):
    """Each payer is warned once, however often the guard looks."""

    lifecycle = "BalanceGuard"
    effect_of_the_day = Pair("BalanceGuard", "guard_balances")

    async def start_it(self) -> None:
        await self.start(BalanceGuard, BalanceGuardRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.short.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.warned

    def look(self) -> None:
        twice = [name for name, times in self.world.warned.items() if times > 1]
        self.expect(not twice, f"warned twice: {twice}")
        self.look_at_the_cause()


class PriceRefreshStory(LoopStory):
    """Prices change before the fault, and after it."""

    lifecycle = "PriceRefresh"

    async def start_it(self) -> None:
        await self.start(PriceRefresh, ReconciliationRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.cloud.untold_prices.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.cloud.known_prices

    def look(self) -> None:
        self.expect(not self.world.cloud.untold_prices, "prices that were told are not known")
        self.look_at_the_cause()


class OfferRefreshStory(LoopStory):
    """What a marketplace offers changes before the fault, and after it."""

    lifecycle = "OfferRefresh"

    async def start_it(self) -> None:
        await self.start(OfferRefresh, ReconciliationRequest(), self.workflow_id)

    def add(self, job_id: str) -> None:
        self.world.cloud.untold_offers.add(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.cloud.known_offers

    def look(self) -> None:
        self.expect(not self.world.cloud.untold_offers, "offers that were told are not known")
        self.look_at_the_cause()


class TrunkStory(LoopStory):
    """Who reaches a job and gets no answer asks again, which makes another trunk."""

    lifecycle = "TrunkOpening"
    asks = 0

    def __init__(self, client: Client, name: str, world: FaultedWorld) -> None:
        super().__init__(client, name, world)
        self._wanted: list[str] = []

    async def start_it(self) -> None:
        self.asks += 1
        missing = [each for each in self._wanted if not self.is_served(each)]
        command = OpenTrunk(
            node=node_address("nod-1"),
            trunk_id=f"trk-{self.asks}",
            run_id=missing[0] if missing else self._wanted[-1],
            sealed="",
        )
        await self.start(TrunkOpening, command, self.workflow_id)

    def add(self, job_id: str) -> None:
        self._wanted.append(job_id)

    def is_served(self, job_id: str) -> bool:
        return job_id in self.world.cloud.trunks
