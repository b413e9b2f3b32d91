"""Starts of the lifecycles of datasets, models, checkpoints and volumes, from their rows."""

from pydantic import TypeAdapter
from sqlmodel import Session

from activities.db.tables import ArtifactRow
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
from workflows.contracts.artifacts import ArtifactRequest, ArtifactStatus, Content, Source

SOURCES: TypeAdapter[Source] = TypeAdapter(Source)


def start_artifact(_: Session, row: ArtifactRow) -> WorkflowStart[ArtifactRequest]:
    """The start of an artifact's workflow."""
    request = ArtifactRequest(
        artifact_id=row.id,
        account_id=row.account_id,
        source=SOURCES.validate_python(row.source),
        sequence=row.sequence,
        content=content_of(row),
    )
    return workflow_start(row, request, {})


def resume_artifact(_: Session, row: ArtifactRow, request: ArtifactRequest) -> ArtifactRequest:
    """The request that adopts an artifact: it comes back to the status of its row.

    A transfer that was under way begins again, and goes on after what it has stored.
    """
    update = {
        "resumed_status": ArtifactStatus(row.status),
        "resumed_reason": row.status_reason,
        "removal": removal_of(row),
    }
    return request.model_copy(update=update)


def content_of(row: ArtifactRow) -> Content | None:
    """The content that a row says is complete; None: it is not."""
    if row.content_sha256 is None:
        return None
    return Content(
        sha256=row.content_sha256,
        size_bytes=row.size_bytes or 0,
        unpacked_bytes=row.unpacked_bytes or 0,
        file_count=row.file_count or 0,
    )
