"""The lives that are broken: which story reaches which effect of which lifecycle."""

from tests.failure.pairs import Pair
from tests.failure.stories.artifacts import ArtifactStory, RegionalArtifactStory
from tests.failure.stories.bill import BillStory
from tests.failure.stories.cloud_region import CloudRegionStory
from tests.failure.stories.datastores import DatastoreStory
from tests.failure.stories.devices import DEVICE_STORIES
from tests.failure.stories.ends import ENDED_STORIES
from tests.failure.stories.federation import FEDERATED_STORIES
from tests.failure.stories.job import (
    DeliveredStory,
    KeptStateStory,
    PreemptedStory,
    RescheduledStory,
    TrainingStory,
)
from tests.failure.stories.lease import DeadlineStory, ImageMachineStory, MachineStory
from tests.failure.stories.leased_node import EndingNodeStory, LeasedNodeStory, LyingHostStory
from tests.failure.stories.loops import (
    BalanceGuardStory,
    DeviceFeesStory,
    HousekeepingStory,
    NewsStory,
    OfferRefreshStory,
    PayoutsStory,
    PlacementStory,
    PriceRefreshStory,
    StartsStory,
    SweepStory,
    TrunkStory,
)
from tests.failure.stories.node import LossStory, NodeStory, StuckRunStory
from tests.failure.stories.notebook import NOTEBOOK_STORIES
from tests.failure.stories.own_storage import OwnStorageStory
from tests.failure.stories.regions import (
    CloudProviderStory,
    MarketplaceStory,
    ProviderStory,
    ReconciledProviderStory,
    RegionStory,
)
from tests.failure.stories.story import Story

STORIES: tuple[type[Story], ...] = (
    TrainingStory,
    DeliveredStory,
    *NOTEBOOK_STORIES,
    *ENDED_STORIES,
    PreemptedStory,
    RescheduledStory,
    KeptStateStory,
    BillStory,
    *FEDERATED_STORIES,
    NodeStory,
    LossStory,
    StuckRunStory,
    LeasedNodeStory,
    EndingNodeStory,
    LyingHostStory,
    ProviderStory,
    CloudProviderStory,
    ReconciledProviderStory,
    MarketplaceStory,
    RegionStory,
    CloudRegionStory,
    OwnStorageStory,
    ArtifactStory,
    RegionalArtifactStory,
    DatastoreStory,
    *DEVICE_STORIES,
    PlacementStory,
    StartsStory,
    SweepStory,
    MachineStory,
    ImageMachineStory,
    DeadlineStory,
    OfferRefreshStory,
    PriceRefreshStory,
    HousekeepingStory,
    NewsStory,
    TrunkStory,
    DeviceFeesStory,
    PayoutsStory,
    BalanceGuardStory,
)


def story_of(pair: Pair, variant: str = "") -> type[Story] | None:
    """The story that reaches an effect of a lifecycle; None: nobody has written it yet."""
    of_lifecycle = [
        story for story in STORIES if story.lifecycle == pair.lifecycle and story.variant == variant
    ]
    for story in of_lifecycle:
        if pair.stub in story.only:
            return story
    return next((story for story in of_lifecycle if not story.only), None)


__all__ = ["STORIES", "Story", "story_of"]
