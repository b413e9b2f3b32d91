"""The life of a region in a cloud: made, its storage replaced, removed; and nothing left of it."""

from tests.failure.cases import Mode
from tests.failure.stories.leased_node import WISH
from tests.failure.stories.places import BEGINNINGS, PROVIDER, PlaceStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.world import REGION
from workflows.contracts.provider import RegionRequest, Replacement
from workflows.contracts.states import ProviderKind, RegionStatus
from workflows.region import RegionLifecycle

REPLACED = ("region.storage-replaced", "region.storage-not-replaced")


class CloudRegionStory(PlaceStory):
    """A person replaces its storage, then removes it; one that has failed too."""

    lifecycle = "RegionLifecycle"
    only = frozenset(
        {
            "make_region_part",
            "remove_region_part",
            "add_storage_node",
            "find_storage",
            "dismiss_node",
        }
    )
    resource_id, dependent = REGION, "nod-1"

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
            provider_kind=ProviderKind.GCP,
            name="burst",
            cloud_region="us-central1",
            storage=WISH,
            sequence=row.sequence if row else 0,
            carried_status=RegionStatus.HEALTHY if kept is RegionStatus.REMOVING else kept,
        )
        await self.start(RegionLifecycle, request, self.workflow_id)

    async def answer(self, status: str) -> None:
        if status == RegionStatus.FAILED:
            await self.cancel()
        elif status == RegionStatus.HEALTHY and not self._is_replaced():
            await self.signal(self.workflow_id, "replace", Replacement())
        elif status == RegionStatus.HEALTHY:
            await self.cancel()

    def _is_replaced(self) -> bool:
        return any(name in self.world.events[REGION] for name in REPLACED)

    def look(self) -> None:
        world = self.world
        left = [node.node_id for node in world.storage[REGION]]
        self.expect(not left, f"{left} are left, and cost")
        self.expect(not world.parts[REGION], f"{sorted(world.parts[REGION])} are left in its cloud")
        if self.mode in HARMLESS:
            seen = world.statuses[REGION]
            self.expect("failed" not in seen, f"it was {seen}")
            replaced = world.events[REGION].count("region.storage-replaced")
            self.expect(replaced >= 1, "its storage was not replaced")
        if self.mode is not Mode.CANCELED:
            self.look_at_the_cause()
