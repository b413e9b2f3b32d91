"""Artifacts: datasets, models, checkpoints and volumes, their sources, content and lifecycle.

The bytes of a content never pass through a workflow, which knows its hash and its size alone.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from workflows.contracts.base import Contract
from workflows.contracts.removals import RemovalProgress

SHA256 = r"^[0-9a-f]{64}$"
MOST_FILES = 1_000_000
"""The most files of one artifact."""
MOST_UPLOAD_PARTS = 65_536
"""The most parts of one upload: 4 TiB of parts of 64 MiB."""


class ArtifactStatus(StrEnum):
    """The statuses of an artifact."""

    NEW = "new"
    TRANSFERRING = "transferring"
    READY = "ready"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class ArtifactEvent(StrEnum):
    """What the types of an artifact's events say behind its noun: `ready` of `dataset.ready`."""

    ARCHIVED = "archived"
    FAILED = "failed"
    PROGRESS = "progress"
    READY = "ready"
    REMOVAL_REFUSED = "removal-refused"
    REMOVING = "removing"
    REQUEST_PARKED = "request-parked"
    REQUESTED = "requested"
    TRANSFERRING = "transferring"

    def of(self, noun: str) -> str:
        """The type of an event of this noun."""
        return f"{noun}.{self.value}"


def events_of(noun: str) -> type[StrEnum]:
    """The types of the events of one noun among the artifacts."""
    members = {event.name: event.of(noun) for event in ArtifactEvent}
    made = cast("Any", StrEnum)(f"{noun.title()}Event", members, module=__name__)
    return cast("type[StrEnum]", made)


DatasetEvent = events_of("dataset")
ModelEvent = events_of("model")
CheckpointEvent = events_of("checkpoint")
VolumeEvent = events_of("volume")


class ArtifactRole(StrEnum):
    """The roles in which a job uses an artifact."""

    DATASET = "dataset"
    MODEL = "model"
    CHECKPOINT = "checkpoint"
    INPUT = "input"
    VOLUME_READER = "volume_reader"
    VOLUME_WRITER = "volume_writer"


class VolumeAccess(StrEnum):
    """The access of a job to a volume: one writer, or many readers."""

    READ = "read"
    WRITE = "write"

    @property
    def role(self) -> ArtifactRole:
        """The role in which a job with this access uses the volume."""
        return ArtifactRole.VOLUME_WRITER if self is self.WRITE else ArtifactRole.VOLUME_READER


class Content(Contract):
    """The content of an artifact: the hash of its manifest, and how much it is."""

    sha256: str = Field(pattern=SHA256)
    """The hash of the manifest, which names each part of the content by its own hash."""
    size_bytes: int = Field(ge=0)
    """The size of all parts together: what a transfer sends."""
    unpacked_bytes: int = Field(ge=0)
    """The size of all files together."""
    file_count: int = Field(ge=0)


def web_url(url: str) -> str:
    """The URL, which is stored and shown as it is.

    Raises: ValueError, when it has a user or a password, or is no URL.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0 or "@" in parts.netloc:
        raise ValueError("is a URL with a host, and without user and password")
    return url


def git_url(url: str) -> str:
    """The URL; over SSH it may name a user, which is no secret.

    Raises: ValueError, when it has a password, or over HTTPS a user, or is no URL.
    """
    parts = urlsplit(url)
    if parts.scheme != "ssh":
        return web_url(url)
    if parts.password is not None or parts.port == 0:
        raise ValueError("is a URL with a host, and without a password")
    for part, rule in ((parts.username or "git", _SSH_USER), (parts.hostname or "", _SSH_HOST)):
        if rule.fullmatch(part) is None:
            raise ValueError("is ssh://USER@HOST/PATH")
    return url


KAGGLE_NAME, HUB_NAME = "[A-Za-z0-9][A-Za-z0-9_-]*", "[A-Za-z0-9][A-Za-z0-9_.-]*"
"""The patterns of names of owners, datasets and repositories, which have ASCII alone."""
_SSH_USER = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
_SSH_HOST = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
_Url = Annotated[str, AfterValidator(web_url)]
_GitUrl = Annotated[str, AfterValidator(git_url)]


class _Source(Contract):
    """Where the content of an artifact comes from; it has no secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KeyedSource(_Source):
    """A source that the project's third-party key of its type opens."""

    with_key: bool | None = None
    """Whether it is read with the project's key of this type; null: if the project has one, which
    the caller may use, and the source names no secret."""


class EmptySource(_Source):
    """No content: a volume that jobs write to."""

    type: Literal["empty"]


class UploadSource(_Source):
    """An uncompressed tar that the client sends in parts."""

    type: Literal["upload"]
    part_count: int | None = Field(default=None, ge=0, le=MOST_UPLOAD_PARTS)
    """How many parts there are; null: they are still being sent."""


class WebSource(_Source):
    """A file of a web server; a `.tar`, `.tar.gz`, `.tgz` or `.zip` is unpacked."""

    type: Literal["web"]
    url: _Url = Field(max_length=2000, pattern=r"^https?://[!-~]+$")
    sha256: str | None = Field(default=None, max_length=64, pattern=SHA256)
    """The hash that the file must have; null: any file is taken."""
    unpack: bool = True
    """Whether an archive is unpacked; otherwise it is one file of the artifact."""


class GitSource(KeyedSource):
    """The files of one revision of a git repository, without its history.

    Over SSH (`ssh://git@HOST/PATH`) it is always read with the project's key of the type git.
    """

    type: Literal["git"]
    url: _GitUrl = Field(max_length=2000, pattern=r"^(https|ssh)://[!-~]+$")
    revision: str = Field(
        default="HEAD", min_length=1, max_length=200, pattern=r"^[0-9A-Za-z][0-9A-Za-z._/+-]*$"
    )
    """A branch, a tag or a full commit id."""


class JobSource(_Source):
    """The output of one worker of a job of the same project."""

    type: Literal["job"]
    job_id: str = Field(max_length=100, pattern=r"^job-[0-9a-z]{26}$")
    worker: int = Field(default=0, ge=0, le=10_000)


class ArtifactSource(_Source):
    """The content of another artifact, which is copied."""

    type: Literal["artifact"]
    artifact_id: str = Field(max_length=100, pattern=r"^(dat|mod|chk|vol)-[0-9a-z]{26}$")


class ObjectStoreSource(KeyedSource):
    """The objects of a bucket at Amazon or Wasabi whose names begin alike."""

    type: Literal["aws", "wasabi"]
    bucket: str = Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    prefix: str = Field(default="", max_length=900)
    """What the names begin with, up to a `/`; files are named by the rest."""
    region: str = Field(default="us-east-1", max_length=32, pattern=r"^[a-z0-9][a-z0-9-]*$")
    secret: str | None = Field(
        default=None, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )
    """The name of the project's secret with `ACCESS_KEY_ID:SECRET_ACCESS_KEY`; null: the bucket is
    public, or the project's key opens it."""


class GoogleStorageSource(KeyedSource):
    """The objects of a bucket at Google whose names begin alike."""

    type: Literal["gcp"]
    bucket: str = Field(min_length=3, max_length=222, pattern=r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$")
    prefix: str = Field(default="", max_length=900)
    """What the names begin with, up to a `/`; files are named by the rest."""


class AzureSource(KeyedSource):
    """The blobs of a container at Azure whose names begin alike."""

    type: Literal["azure"]
    account: str = Field(min_length=3, max_length=24, pattern=r"^[a-z0-9]+$")
    """The storage account; that of the project's key, if it is read with one."""
    container: str = Field(min_length=1, max_length=63, pattern=r"^([a-z0-9][a-z0-9-]*|\$root)$")
    prefix: str = Field(default="", max_length=900)
    """What the names begin with, up to a `/`; files are named by the rest."""


class KaggleSource(KeyedSource):
    """The files of one version of a dataset at Kaggle."""

    type: Literal["kaggle"]
    dataset: str = Field(max_length=200, pattern=rf"^{KAGGLE_NAME}/{KAGGLE_NAME}$")
    """Such as `uciml/iris`."""
    version: int | None = Field(default=None, ge=1, le=1_000_000)
    """Its number; null: the newest one when the transfer begins."""


class HuggingFaceSource(KeyedSource):
    """The files of one revision of a repository at Hugging Face."""

    type: Literal["huggingface"]
    repo: str = Field(max_length=200, pattern=rf"^{HUB_NAME}(/{HUB_NAME})?$")
    """Such as `google-bert/bert-base-uncased`."""
    kind: Literal["model", "dataset"] = "model"
    revision: str = Field(
        default="main", min_length=1, max_length=200, pattern=r"^[0-9A-Za-z][0-9A-Za-z._/+-]*$"
    )
    """A branch, a tag or a commit."""
    secret: str | None = Field(
        default=None, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )
    """The name of the project's secret with a token; null: the repository is public,
    or the project's key opens it."""


class RegionalSource(_Source):
    """The files of a folder of a datastore, which a node of its region reads."""

    type: Literal["regional"]
    datastore_id: str = Field(max_length=100, pattern=r"^dst-[0-9a-z]{26}$")
    path: str = Field(default="/", max_length=1024)
    """The folder, relative to the root of the datastore; `/` is all of it."""


Source = Annotated[
    EmptySource
    | UploadSource
    | WebSource
    | GitSource
    | JobSource
    | ArtifactSource
    | ObjectStoreSource
    | HuggingFaceSource
    | RegionalSource
    | GoogleStorageSource
    | AzureSource
    | KaggleSource,
    Field(discriminator="type"),
]
"""The source of an artifact's content."""


class Progress(Contract):
    """How far the transfer of an artifact has come."""

    bytes_transferred: int = Field(default=0, ge=0)
    file_count: int = Field(default=0, ge=0)
    total_bytes: int | None = Field(default=None, ge=0)
    """What the source has in all; None: it does not say."""


class ArtifactRequest(Contract):
    """Input of `dataset/{id}`, `model/{id}`, `checkpoint/{id}` and `volume/{id}`."""

    artifact_id: str
    account_id: str
    source: Source
    sequence: int = 0
    resumed_status: ArtifactStatus | None = None
    resumed_reason: str | None = None
    content: Content | None = None
    removal: RemovalProgress | None = None
    """The removal that is under way; None: there is none."""


class ArtifactReport(Contract):
    artifact_id: str
    status: ArtifactStatus
    status_reason: str | None = None


class UploadComplete(Contract):
    """Signal `complete`: all parts of the upload are there."""

    source: UploadSource


class RetryTransfer(Contract):
    """Signal `retry`: a person wants a failed transfer to be tried again."""

    requested_by: str = ""
