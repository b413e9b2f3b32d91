"""The lives of providers and regions: checked, used, removed with what is in them."""

from typing import Any, ClassVar

from tests.failure.cases import Mode
from tests.failure.stories.story import HARMLESS, Story
from tests.workflows.fake_world import REGION
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound, TerminateOrphan
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.regions import RegionRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import ProviderKind, ProviderStatus, RegionStatus
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle

PROVIDER = "prv-1"
BEGINNINGS = ("", ProviderStatus.ENABLING, RegionStatus.PROVISIONING)


class PlaceStory(Story):
    """What providers and regions share: the removal of one that something still uses."""

    resource_id: str
    dependent: str

    @property
    def status(self) -> str:
        return self.world.status_of(self.resource_id)

    async def begin(self) -> None:
        self.world.dependents[self.resource_id].add(self.dependent)
        self.answered: set[int] = set()
        await self.start_it()

    async def start_it(self) -> None:
        """From nothing, or from its row as the sweep does."""
        raise NotImplementedError

    async def cancel(self) -> None:
        self.asked = True
        await self.signal(self.workflow_id, "remove", Removal(force=True))

    async def step(self) -> bool:
        if self.has_ended():
            if self.status == "archived":
                return True
            was_removing = self.status == "removing"
            self.answered.clear()
            self.asked = False  # What was asked of the workflow that has ended is lost.
            await self.start_it()
            if was_removing:
                await self.cancel()
        row = self.world.rows.get(self.resource_id)
        if row is not None and row.sequence not in self.answered:
            self.answered.add(row.sequence)
            await self.answer(row.status)
        return False

    async def answer(self, status: str) -> None:
        """What a person does when it is in this state."""
        raise NotImplementedError

    def look(self) -> None:
        left = self.world.dependents[self.resource_id]
        self.expect(not left, f"{sorted(left)} have lost the place that they are in")
        if self.mode in HARMLESS:
            seen = self.world.statuses[self.resource_id]
            broken = {"failed", "offline"} & set(seen)
            self.expect(not broken, f"it was {sorted(broken)}")
        self.look_at_the_cause()


class ProviderStory(PlaceStory):
    lifecycle = "ProviderLifecycle"
    resource_id, dependent = PROVIDER, REGION
    kind = ProviderKind.PHYSICAL

    @property
    def workflow_id(self) -> str:
        return f"provider/{self.name}"

    async def start_it(self) -> None:
        row = self.world.rows.get(PROVIDER)
        kept = None if self.status in BEGINNINGS else ProviderStatus(self.status)
        request = ProviderRequest(
            provider_id=PROVIDER,
            account_id="acc-1",
            kind=self.kind,
            sequence=row.sequence if row else 0,
            resumed_status=ProviderStatus.READY if kept is ProviderStatus.REMOVING else kept,
        )
        await self.start(ProviderLifecycle, request, self.workflow_id)

    async def answer(self, status: str) -> None:
        if status == ProviderStatus.FAILED:
            await self.signal(self.workflow_id, "recheck")
        elif status == ProviderStatus.READY:
            await self.cancel()


class CloudProviderStory(ProviderStory):
    """One with things of its own in its cloud. A person ends what is unknown there and removes it
    by force: what cannot be removed is then left, and named."""

    only = frozenset(
        {
            "check_cloud",
            "ensure_provider_resource",
            "remove_provider_resource",
            "forget_provider_key",
            "list_owned_machines",
            "start_notifications",
            "terminate_orphaned_machine",
        }
    )
    kind = ProviderKind.GCP
    may_be_left = (Mode.FAILS_FOR_GOOD, Mode.HANGS)
    STRAY = OrphanedMachine(name="baseload-stray", zone="zone-a")

    async def begin(self) -> None:
        self.world.cloud.unknown.add(self.STRAY.name)
        await super().begin()

    async def answer(self, status: str) -> None:
        if status == ProviderStatus.READY:
            await self.signal(
                self.workflow_id, "orphaned_machines", OrphanedMachinesFound(machines=(self.STRAY,))
            )
            await self.signal(
                self.workflow_id, "terminate_orphan", TerminateOrphan(machine=self.STRAY)
            )
        await super().answer(status)

    def look(self) -> None:
        super().look()
        if self.mode in HARMLESS:
            self.expect(not self.world.cloud.unknown, "what a person has ended is still there")
            self.expect(self.world.cloud.followed[PROVIDER] > 0, "nobody listens to its news")
        left = self.world.resources[PROVIDER]
        allowed = self.stub == "remove_provider_resource" and self.mode in self.may_be_left
        named = all(any(f"{resource}: " in line for line in self.world.said) for resource in left)
        self.expect(not left or (allowed and named), f"{sorted(left)} are left in its cloud")
        self.expect(PROVIDER in self.world.forgotten_keys, "its key is still kept")


class ReconciledProviderStory(ProviderStory):
    """A cloud in which a machine is left that its lease does not need; it is removed after that."""

    only = frozenset({"reconcile_machines"})
    kind = ProviderKind.GCP

    async def begin(self) -> None:
        self.world.cloud.stray.add("baseload-late")
        await super().begin()

    async def step(self) -> bool:
        if self.has_ended():
            self.asked = False  # The request may have come to the run that has ended.
        is_ready = self.status == ProviderStatus.READY and not self.asked
        is_over = self.is_struck and not self.world.cloud.stray and self._is_told()
        if is_ready and is_over and not self.has_ended():
            await self.cancel()
        return await super().step()

    def _is_told(self) -> bool:
        """Whether people are told of the failure, where there is one to be told of."""
        told = "provider.not-reconciled" in self.world.events[PROVIDER]
        return told or self.mode not in (Mode.FAILS_FOR_GOOD, Mode.HANGS)

    async def answer(self, status: str) -> None:
        if status == ProviderStatus.FAILED:
            await self.signal(self.workflow_id, "recheck")

    def look(self) -> None:
        super().look()
        self.expect(not self.world.cloud.stray, "a machine that no lease needs is left")


class MarketplaceStory(ProviderStory):
    """A marketplace, whose offers are read as soon as it is ready."""

    only = frozenset({"refresh_offers"})
    silent: ClassVar[dict[str, str]] = {
        "refresh_offers": "their schedule reads them a few minutes later",
    }
    kind = ProviderKind.RUNPOD

    async def answer(self, status: str) -> None:
        """A person removes it after its offers are known, or could not be read."""
        if status == ProviderStatus.FAILED:
            await self.signal(self.workflow_id, "recheck")

    async def step(self) -> bool:
        is_ready = self.status == ProviderStatus.READY and not self.asked
        if is_ready and self.is_struck and not self.has_ended():
            await self.cancel()
        return await super().step()


class RegionStory(PlaceStory):
    lifecycle = "RegionLifecycle"
    resource_id, dependent = REGION, "nod-1"
    place: ClassVar[dict[str, Any]] = {"provider_kind": ProviderKind.PHYSICAL, "name": "home"}
    """What its request says of where it is."""

    @property
    def workflow_id(self) -> str:
        return f"region/{self.name}"

    async def start_it(self) -> None:
        row = self.world.rows.get(REGION)
        kept = None if self.status in BEGINNINGS else RegionStatus(self.status)
        request = RegionRequest(
            region_id=REGION,
            account_id="acc-1",
            provider_id=PROVIDER,
            sequence=row.sequence if row else 0,
            resumed_status=RegionStatus.HEALTHY if kept is RegionStatus.REMOVING else kept,
            **self.place,
        )
        await self.start(RegionLifecycle, request, self.workflow_id)

    async def answer(self, status: str) -> None:
        if status == RegionStatus.HEALTHY:
            await self.cancel()
