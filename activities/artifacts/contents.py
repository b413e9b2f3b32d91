"""The stored content of an artifact: how much of it there is, and its removal."""

from sqlalchemy import delete, update
from sqlmodel import col
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.scratch import remove_scratch
from activities.artifacts.slots import forget_slot
from activities.db.session import database
from activities.db.tables import ArtifactPart, table_of_artifact
from activities.settings import settings
from activities.storage import contents
from activities.storage.blobs import blob_store
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.artifacts import ArtifactStatus, Progress
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND
from workflows.effects.artifacts import FindProgress, RemoveContent


@activity.defn
def find_progress(command: FindProgress) -> Progress:
    """How much is stored of an artifact's content. Raises: ApplicationError `NotFound`."""
    with database().read() as session:
        row = session.get(table_of_artifact(command.artifact_id), command.artifact_id)
        if row is None:
            raise ApplicationError(
                f"{command.artifact_id}: there is no such artifact", type=NOT_FOUND
            )
        progress = Progress(
            bytes_transferred=row.bytes_transferred,
            file_count=row.file_count or 0,
            total_bytes=row.total_bytes,
        )
        is_regional = row.source.get("type") == "regional"
    return _of_store(command.artifact_id, progress) if is_regional else progress


def _of_store(artifact_id: str, progress: Progress) -> Progress:
    """The progress of a transfer by a node, whose site writes no rows; the row has it as well."""
    stored = contents.stored_bytes(blob_store(settings().storage), artifact_id)
    table = table_of_artifact(artifact_id)
    transferring = (
        col(table.id) == artifact_id,
        col(table.status) == ArtifactStatus.TRANSFERRING,
    )
    with database().write() as session:
        session.execute(update(table).where(*transferring).values(bytes_transferred=stored))
    return progress.model_copy(update={"bytes_transferred": stored})


@activity.defn
def remove_content(command: RemoveContent) -> Done:
    """Remove everything that is stored of an artifact; silent when there is nothing."""
    with beating_aside():
        contents.remove_content(blob_store(settings().storage), command.artifact_id)
        remove_scratch(command.artifact_id)
        forget_slot(command.artifact_id)
    own = col(ArtifactPart.artifact_id) == command.artifact_id
    with database().write() as session:
        session.execute(delete(ArtifactPart).where(own))
    return Done()
