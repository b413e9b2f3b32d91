"""The life of a dataset, whose lifecycle models, checkpoints and volumes have too."""

from typing import ClassVar

from tests.failure.stories.regions import PlaceStory
from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts.artifacts import (
    ArtifactRequest,
    ArtifactStatus,
    RegionalSource,
    RetryTransfer,
    Source,
    WebSource,
)
from workflows.contracts.lifecycles import ArtifactChanges
from workflows.contracts.removals import Removal, RemovalProgress

DATASET = "dat-1"
DATASTORE = "dst-01jd0000000000000000000000"
SOURCE = WebSource(type="web", url="https://example.test/cats.tar")


class ArtifactStory(PlaceStory):
    """A dataset from the web: a failed transfer is tried again, a ready dataset is removed."""

    lifecycle = "ArtifactLifecycle"
    resource_id = DATASET
    source: Source = SOURCE
    silent: ClassVar[dict[str, str]] = {
        "find_progress": "the transfer goes on, and says itself when it fails",
    }

    @property
    def workflow_id(self) -> str:
        return f"dataset/{self.name}"

    async def begin(self) -> None:
        self.world.looks_wanted = 2
        self.answered: set[int] = set()
        await self.start_it()

    async def start_it(self) -> None:
        row = self.world.rows.get(DATASET)
        status = ArtifactStatus(self.status) if row is not None else None
        is_removing = status is ArtifactStatus.REMOVING
        changes = row.changes if row is not None else None
        request = ArtifactRequest(
            artifact_id=DATASET,
            account_id="acc-1",
            source=self.source,
            sequence=row.sequence if row else 0,
            resumed_status=status,
            content=changes.content if isinstance(changes, ArtifactChanges) else None,
            removal=RemovalProgress(removal=Removal()) if is_removing else None,
        )
        await self.start(ArtifactLifecycle, request, self.workflow_id)

    async def answer(self, status: str) -> None:
        if status == ArtifactStatus.FAILED:
            await self.signal(self.workflow_id, "retry", RetryTransfer())
        elif status == ArtifactStatus.READY:
            await self.cancel()

    def look(self) -> None:
        super().look()
        self.expect(not self.world.contents, f"{sorted(self.world.contents)} is still stored")
        self.expect(not self.world.under_way["transfer_artifact"], "it is still transferred")
        self.expect(not self.world.under_way["transfer_from_datastore"], "a node still reads")


class RegionalArtifactStory(ArtifactStory):
    """A dataset from a datastore, which nodes of its region read."""

    only = frozenset({"find_datastore_reader", "transfer_from_datastore"})
    source: Source = RegionalSource(type="regional", datastore_id=DATASTORE)

    async def begin(self) -> None:
        self.answered: set[int] = set()
        await self.start_it()
