"""The storage node of own machines is replaced in the life of its region."""

from typing import Any, ClassVar

from tests.failure.stories.cloud_region import HELD
from tests.failure.stories.regions import RegionStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.fake_world import REGION
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import NodeStatus, ProviderKind, RegionStatus
from workflows.effects.regions import StorageNode

OLD, NEW = "nod-old", "nod-new"


class OwnStorageStory(RegionStory):
    """A person adds the node that takes the place, and removes the region afterwards."""

    only = frozenset({"find_storage_fill", "fill_cache", "request_node_removal"})
    variant = "own_storage"
    silent: ClassVar[dict[str, str]] = {
        "fill_cache": "it is tried again, and what is not filled comes as jobs need it"
    }
    place: ClassVar[dict[str, Any]] = {
        "provider_kind": ProviderKind.PHYSICAL,
        "name": "home",
        "central_storage": True,
    }

    async def begin(self) -> None:
        self.world.storage[REGION].append(
            StorageNode(node_id=OLD, name=OLD, status=NodeStatus.ACTIVE)
        )
        self.world.cached[OLD] |= HELD
        await super().begin()

    async def answer(self, status: str) -> None:
        if status == RegionStatus.HEALTHY and NEW not in self.world.fills_from:
            self.world.fills_from[NEW] = OLD
            self.world.storage[REGION].append(
                StorageNode(node_id=NEW, name=NEW, status=NodeStatus.ACTIVE)
            )
            await self.signal(self.workflow_id, "replace", Replacement())

    async def step(self) -> bool:
        is_over = OLD not in [one.node_id for one in self.world.storage[REGION]]
        if is_over and self.status == RegionStatus.HEALTHY and not self.asked:
            await self.cancel()
        return await super().step()

    def look(self) -> None:
        super().look()
        if self.mode in HARMLESS:
            self.expect(self.world.cached[NEW] >= HELD, "its new storage node was not filled")
