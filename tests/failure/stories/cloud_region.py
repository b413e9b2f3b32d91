"""The life of a region in a cloud: made, its storage replaced, removed; and nothing left of it."""

from typing import Any, ClassVar

from tests.failure.cases import Mode
from tests.failure.stories.regions import RegionStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.fake_world import REGION
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import ProviderKind, RegionStatus

HELD = {"code/a", "parts/b"}
"""What the cache of the storage node holds."""
REPLACED = ("region.storage-replaced", "region.storage-not-replaced")


class CloudRegionStory(RegionStory):
    """A person replaces its storage, then removes it; one that has failed too."""

    only = frozenset(
        {
            "ensure_region_resource",
            "remove_region_resource",
            "find_storage_claim",
            "add_storage_node",
            "find_storage",
            "find_storage_fill",
            "fill_cache",
            "request_node_removal",
        }
    )
    silent: ClassVar[dict[str, str]] = {
        "fill_cache": "it is tried again, and what is not filled comes as jobs need it"
    }
    place: ClassVar[dict[str, Any]] = {
        "provider_kind": ProviderKind.GCP,
        "name": "burst",
        "cloud_region": "us-central1",
    }

    async def answer(self, status: str) -> None:
        if status == RegionStatus.FAILED:
            await self.cancel()
        elif status == RegionStatus.HEALTHY and not self._is_replaced():
            for node in self.world.storage[REGION]:
                self.world.cached[node.node_id] |= HELD
            await self.signal(self.workflow_id, "replace", Replacement())
        elif status == RegionStatus.HEALTHY:
            await self.cancel()

    def _is_replaced(self) -> bool:
        return any(name in self.world.events[REGION] for name in REPLACED)

    def look(self) -> None:
        world = self.world
        left = [node.node_id for node in world.storage[REGION]]
        self.expect(not left, f"{left} are left, and cost")
        self.expect(
            not world.resources[REGION], f"{sorted(world.resources[REGION])} are left in its cloud"
        )
        if self.mode in HARMLESS:
            seen = world.statuses[REGION]
            self.expect("failed" not in seen, f"it was {seen}")
            replaced = world.events[REGION].count("region.storage-replaced")
            self.expect(replaced >= 1, "its storage was not replaced")
            filled = [node_id for node_id in world.fills_from if world.cached[node_id] >= HELD]
            self.expect(bool(filled), "its new storage node was not filled")
        if self.mode is not Mode.CANCELED:
            self.look_at_the_cause()
