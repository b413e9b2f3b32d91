"""The schemas of datasets, models, checkpoints and volumes."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, JsonValue

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResourceId, ResponseBody
from workflows.contracts.artifacts import MOST_UPLOAD_PARTS, Source, VolumeAccess


class ArtifactCreation(RequestBody):
    """A new dataset, model, checkpoint or volume."""

    name: Name
    project_id: ResourceId | None = None
    """The project that it belongs to; null: the personal one."""
    source: Source
    """Where its files come from. `upload` takes them from the client, in parts."""


class VolumeHolder(ResponseBody):
    """A job that has a volume now; others wait until its run has provably ended."""

    job_id: str | None
    """null: the caller may not read the job."""
    access: VolumeAccess


class Artifact(Lifecycle):
    """A dataset, model, checkpoint or volume."""

    project_id: str
    source: dict[str, JsonValue]
    content_sha256: str | None
    """The hash of the content; null until the content is complete."""
    size_bytes: int | None
    """The size of the content as a tar; null until the content is complete."""
    unpacked_bytes: int | None
    file_count: int | None
    bytes_transferred: int
    """What is stored of the content."""
    total_bytes: int | None
    """The size of the source as a tar, where it is known before its end."""
    made_for_job_id: str | None
    """The job whose input a dataset is, or the first job of their array; it is removed when they
    have ended. Null: a person has made it."""
    job_ids: list[str]
    """Of the jobs that use it and have not ended: at most 20 that the caller may read."""
    job_count: int
    """How many jobs use it and have not ended, also those that the caller may not read."""
    holders: list[VolumeHolder]
    """The jobs that have the volume now: one that writes to it, or any number that read it, of
    which 20 are shown."""
    holder_count: int
    written_at: datetime | None
    """When the content was taken from the job that wrote it; null: no job has written it."""
    written_by: str | None
    """The job that wrote the content; null also where the caller may not read the job."""


class ArtifactPage(Page[Artifact]):
    pass


class ArtifactPart(ResponseBody):
    """A part of an upload that is stored."""

    index: int
    sha256: str
    size_bytes: int


class ArtifactParts(ResponseBody):
    """The parts of an upload that are stored, in order."""

    items: list[ArtifactPart]
    part_bytes: int
    """The size of each part but the last."""


class UploadCompletion(RequestBody):
    part_count: Annotated[int, Field(ge=1, le=MOST_UPLOAD_PARTS)]
    """How many parts the upload has."""
