"""The life of a datastore: checked, used, removed with its password."""

from tests.failure.stories.regions import PlaceStory
from tests.workflows.fake_world import REGION
from workflows.contracts.datastores import DatastoreRequest, DatastoreStatus
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.datastores.datastore_lifecycle import DatastoreLifecycle

DATASTORE = "dst-1"


class DatastoreStory(PlaceStory):
    """One that no job uses; its owner removes it once it is ready, or offline for good."""

    lifecycle = "DatastoreLifecycle"
    resource_id = DATASTORE

    @property
    def workflow_id(self) -> str:
        return f"datastore/{self.name}"

    async def begin(self) -> None:
        self.answered: set[int] = set()
        await self.start_it()

    async def start_it(self) -> None:
        row = self.world.rows.get(DATASTORE)
        status = DatastoreStatus(self.status) if self.status else None
        is_removing = status is DatastoreStatus.REMOVING
        request = DatastoreRequest(
            datastore_id=DATASTORE,
            account_id="acc-1",
            region_id=REGION,
            name="lab",
            sequence=row.sequence if row else 0,
            resumed_status=status,
            resumed_reason=row.status_reason if row else None,
            removal=RemovalProgress(removal=Removal()) if is_removing else None,
        )
        await self.start(DatastoreLifecycle, request, self.workflow_id)

    async def answer(self, status: str) -> None:
        if status == DatastoreStatus.READY or (status == "offline" and self.is_struck):
            await self.cancel()

    def look(self) -> None:
        super().look()
        self.expect(DATASTORE in self.world.forgotten_keys, "its password is still kept")
