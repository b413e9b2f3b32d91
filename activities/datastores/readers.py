"""What the transfer of an artifact from a datastore needs of rows: a node that reads it."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import room_of_artifact
from activities.artifacts.attempts import take_regional_slot
from activities.datastores.checks import access_of, find_active_node, not_there
from activities.db.session import database
from activities.db.tables import Datastore, Project, table_of_artifact
from activities.nodes.addresses import address_of
from activities.settings import settings
from activities.storage.datastore_access import seal_access
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.errors import NOT_FOUND, REFUSED
from workflows.effects.datastores import DatastoreReader, FindDatastoreReader

_GONE = (DatastoreStatus.REMOVING, DatastoreStatus.ARCHIVED)


@activity.defn
def find_datastore_reader(command: FindDatastoreReader) -> DatastoreReader:
    """The first active node of the datastore's region that was not tried, with the sealed access.

    The transfer has a slot of its account then, until the artifact is not being transferred.
    Raises: ApplicationError `NotFound`; `Refused`, when the datastore is not of the account that
    owns the artifact's project, or is being removed; `TransferWaits`, while all slots of the
    account are taken; `Stale`.
    """
    artifact_id, datastore_id = command.artifact_id, command.source.datastore_id
    with database().read() as session:
        artifact = session.get(table_of_artifact(artifact_id), artifact_id)
        if artifact is None:
            raise ApplicationError(f"{artifact_id}: there is no such artifact", type=NOT_FOUND)
        row = session.get(Datastore, datastore_id)
        project = session.get_one(Project, artifact.project_id)
        if row is None or row.account_id != project.account_id:
            raise not_there(datastore_id)
        if row.status in _GONE:
            raise ApplicationError(f"datastore {row.name}: is {row.status}", type=REFUSED)
        found = find_active_node(session, row, command.tried)
        if found is None:
            return DatastoreReader()
        node, region = found
        most_bytes = min(settings().artifact_max_bytes, room_of_artifact(session, artifact))
        reader = DatastoreReader(node=address_of(node, region), most_bytes=most_bytes)
        access = access_of(row, region)
    take_regional_slot(artifact_id)
    return reader.model_copy(update={"access": seal_access(node.region_id, access)})
