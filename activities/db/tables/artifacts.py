"""Tables of datasets, models, checkpoints and volumes, their uploaded parts, and who uses them."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, Index
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import RemovableRow, index_where, one_of
from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.lifecycles import noun_of


class ArtifactRow(RemovableRow):
    """The columns of datasets, models, checkpoints and volumes.

    `account_id` is the account of the project's owner, which pays for what is stored.
    """

    project_id: str = Field(foreign_key="projects.id", index=True)
    creator_user_id: str
    creator_account_id: str
    source: dict[str, Any] = Field(sa_type=JSON)
    """Where the content comes from, a `Source`, which has no secrets."""
    content_sha256: str | None = None
    """The hash of the manifest; None: the content is not complete."""
    size_bytes: int | None = Field(default=None, sa_type=BigInteger)
    unpacked_bytes: int | None = Field(default=None, sa_type=BigInteger)
    file_count: int | None = None
    bytes_transferred: int = Field(default=0, sa_type=BigInteger)
    """What is stored of the content so far, counted before it is stored; of an upload also what
    others have replaced."""
    total_bytes: int | None = Field(default=None, sa_type=BigInteger)
    """What the source has in all, for the progress; None: it has not said."""


def _indexes(table: str) -> tuple[Index, ...]:
    is_there = "status != 'archived'"
    return (
        index_where(is_there, f"{table}_name_of_project", "project_id", "name", unique=True),
        Index(f"{table}_by_account", "account_id", "status", "size_bytes", "bytes_transferred"),
    )


class Dataset(ArtifactRow, table=True):
    __tablename__ = "datasets"
    __table_args__ = (
        *_indexes("datasets"),
        index_where("made_for_job_id IS NOT NULL", "datasets_made_for_jobs", "status", "id"),
    )
    made_for_job_id: str | None = None
    """The job whose input it is, or the first job of their array; it goes when they have ended.
    None: a person has made it."""


class Model(ArtifactRow, table=True):
    __tablename__ = "models"
    __table_args__ = _indexes("models")


class Checkpoint(ArtifactRow, table=True):
    __tablename__ = "checkpoints"
    __table_args__ = _indexes("checkpoints")


class Volume(ArtifactRow, table=True):
    __tablename__ = "volumes"
    __table_args__ = _indexes("volumes")
    content_place: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Where the content is stored below the volume's own folder; empty: in it, as it was made."""
    written_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the content was taken from the job that wrote it; None: no job has written it."""
    written_by: str | None = None
    """The job that wrote the content."""


ARTIFACT_TABLES: dict[str, type[ArtifactRow]] = {
    str(table.__tablename__): table for table in ArtifactRow.__subclasses__()
}
"""The tables by their nouns' plurals."""


def table_of_artifact(artifact_id: str) -> type[ArtifactRow]:
    """The table of an artifact's row. Raises: ValueError, when it is no id of an artifact."""
    table = ARTIFACT_TABLES.get(noun_of(artifact_id).plural)
    if table is None:
        raise ValueError(f"{artifact_id}: is no dataset, model, checkpoint or volume")
    return table


def place_of_content(row: ArtifactRow) -> str:
    """Where the present content of an artifact is stored, as `storage/names.py` understands it."""
    place = row.content_place if isinstance(row, Volume) else ""
    return f"{row.id}.{place}" if place else row.id


class VolumeHold(SQLModel, table=True):
    """The hold of a volume by an allocation, live as long as the allocation is.

    Two live writers of one volume cannot exist.
    """

    __tablename__ = "volume_holds"
    allocation_id: str = Field(primary_key=True, foreign_key="allocations.id")
    volume_id: str = Field(primary_key=True, foreign_key="volumes.id")
    job_id: str
    attempt: int
    access: str
    """A `VolumeAccess`."""
    released_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        CheckConstraint(one_of("access", VolumeAccess), name="ck_volume_holds_access"),
        index_where("released_at IS NULL", "volume_holds_live", "volume_id"),
        index_where(
            "released_at IS NULL AND access = 'write'",
            "volume_holds_writer",
            "volume_id",
            unique=True,
        ),
    )


class ArtifactPart(SQLModel, table=True):
    """A part of an upload that is stored."""

    __tablename__ = "artifact_parts"
    artifact_id: str = Field(primary_key=True)
    index: int = Field(primary_key=True)
    sha256: str
    size_bytes: int = Field(sa_type=BigInteger)
    created_at: datetime = Field(sa_type=Instant)


class ArtifactTransfer(SQLModel, table=True):
    """The newest attempt of a transfer or a delivery that is under way; the row goes with it."""

    __tablename__ = "artifact_transfers"
    artifact_id: str = Field(primary_key=True)
    """The artifact that is transferred, or the job whose output is delivered."""
    account_id: str = Field(index=True)
    token: str
    """Names the attempt; one with another token writes nothing any more."""
    renewed_at: datetime = Field(sa_type=Instant)
    """When the attempt was last seen; one of a killed process is seen no more."""


class ArtifactUse(SQLModel, table=True):
    """The use of an artifact by a job, from the job's submission on.

    The artifact is not removed before the job has ended.
    """

    __tablename__ = "artifact_uses"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    artifact_id: str = Field(primary_key=True, index=True)
    role: str = Field(primary_key=True)
    """An `ArtifactRole`."""
