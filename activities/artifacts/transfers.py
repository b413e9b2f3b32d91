"""Transfers of artifacts from their sources: activities of the task queue `transfers`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import room_of_artifact
from activities.artifacts.attempts import attempt_of
from activities.artifacts.extras import module_of_extra
from activities.artifacts.scratch import scratch_folder
from activities.artifacts.sources.git import open_git
from activities.artifacts.sources.kaggle import open_kaggle
from activities.artifacts.sources.stored import open_copy, open_empty, open_output, open_upload
from activities.artifacts.sources.tar_streams import OpenedSource, refused
from activities.artifacts.sources.web import open_web
from activities.artifacts.starts import content_of
from activities.artifacts.storing import Destination, store_source
from activities.db.session import database
from activities.db.tables import (
    ArtifactPart,
    ArtifactRow,
    Job,
    place_of_content,
    table_of_artifact,
)
from activities.secrets.credentials import project_secret
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.contents import (
    Part,
    remove_content,
    remove_manifest,
    remove_other_parts,
    whole_content,
)
from activities.temporal.heartbeats import beating_aside
from activities.third_party_keys.stored import key_row, open_key
from workflows.contracts.artifacts import (
    ArtifactSource,
    ArtifactStatus,
    AzureSource,
    Content,
    EmptySource,
    GitSource,
    GoogleStorageSource,
    HuggingFaceSource,
    JobSource,
    KaggleSource,
    KeyedSource,
    ObjectStoreSource,
    RegionalSource,
    UploadSource,
    WebSource,
)
from workflows.contracts.errors import NOT_FOUND, STALE
from workflows.contracts.third_party_keys import KeyType
from workflows.effects.artifacts import TransferArtifact

_extra = partial(module_of_extra, "activities.artifacts.sources")


@activity.defn
def transfer_artifact(command: TransferArtifact) -> Content:
    """Store the content of an artifact's source, going on after what is stored already.

    Raises: ApplicationError `Refused` for a source or files that break a rule, `Unavailable` for a
    source that does not serve now, `TransferWaits` while all slots of the account are taken,
    `Stale` when the artifact is being removed, `NotFound`.
    """
    store, artifact_id = blob_store(settings().storage), command.artifact_id
    try:
        with (
            beating_aside(),
            attempt_of(artifact_id) as attempt,
            scratch_folder(artifact_id, attempt.token) as scratch,
        ):
            if (content := whole_content(store, artifact_id)) is not None:
                attempt.check()
                remove_other_parts(store, artifact_id)
                return content
            attempt.check()
            remove_manifest(store, artifact_id)
            with database().read() as session:
                most_bytes = _most_bytes(session, artifact_id)
            source = _opened(command, _Place(store, scratch, most_bytes))
            return store_source(source, Destination(store, attempt, most_bytes))
    except ApplicationError as failure:
        if failure.type == STALE and _is_removed(artifact_id):
            remove_content(store, artifact_id)
        raise


@dataclass(frozen=True)
class _Place:
    """Where a source is opened, and how much of it is taken."""

    store: BlobStore
    scratch: Path
    most_bytes: int


def _opened(command: TransferArtifact, place: _Place) -> OpenedSource:
    source, artifact_id = command.source, command.artifact_id
    opened: OpenedSource
    match source:
        case WebSource():
            opened = open_web(source, place.scratch, place.most_bytes)
        case KeyedSource():
            opened = _opened_by_key(artifact_id, source, place)
        case JobSource():
            opened = _output(place.store, artifact_id, source)
        case ArtifactSource():
            opened = _copy(place.store, source.artifact_id)
        case UploadSource():
            opened = open_upload(place.store, artifact_id, _parts(command, source))
        case EmptySource():
            opened = open_empty()
        case RegionalSource():
            raise refused(f"{artifact_id}: a node of the region reads {source.datastore_id}")
    return opened


def _opened_by_key(artifact_id: str, source: KeyedSource, place: _Place) -> OpenedSource:
    """A source that the project's key of its type may open."""
    key = _key(artifact_id, source)
    opened: OpenedSource
    match source:
        case GitSource():
            opened = open_git(source, place.scratch, place.most_bytes, key)
        case KaggleSource():
            opened = open_kaggle(source, key, place.scratch, place.most_bytes)
        case ObjectStoreSource():
            buckets = _extra("object_stores", "s3")
            secret = _secret(artifact_id, source.secret)
            if key is not None:
                secret = f"{key['access_key_id']}:{key['secret_access_key']}"
            token = None if key is None else key.get("session_token")
            opened = buckets.open_bucket(source, secret, token)
        case HuggingFaceSource():
            hub = _extra("huggingface", "huggingface")
            token = _secret(artifact_id, source.secret) if key is None else key["token"]
            opened = hub.open_repository(source, token)
        case GoogleStorageSource():
            # Google's library costs a second, so it is loaded on first use.
            opened = _extra("google_storage", "gcp").open_google_bucket(source, key)
        case AzureSource():
            opened = _extra("azure", "azure").open_container(source, key)
        case _:
            raise refused(f"{artifact_id}: is of an unknown source")
    return opened


def _key(artifact_id: str, source: KeyedSource) -> dict[str, str] | None:
    """The fields of the project's key for a source; None: it is read without one.

    Raises: ApplicationError `Refused`, when the project has the key no longer.
    """
    if not source.with_key:
        return None
    kind = KeyType(getattr(source, "type", ""))
    with database().read() as session:
        project_id = _row(session, artifact_id).project_id
        row = key_row(session, project_id, kind)
    if row is None:
        raise refused(
            f"{artifact_id}: the project has no third-party key {kind} any more; set it, then try "
            "again"
        )
    return open_key(row)


def _output(store: BlobStore, artifact_id: str, source: JobSource) -> OpenedSource:
    """The output of a job of the artifact's own project."""
    with database().read() as session:
        job, row = session.get(Job, source.job_id), _row(session, artifact_id)
        if job is None or job.project_id != row.project_id:
            raise refused(f"{source.job_id}: there is no such job in project {row.project_id}")
        attempt = job.attempt
    return open_output(store, source.job_id, source.worker, attempt)


def _copy(store: BlobStore, artifact_id: str) -> OpenedSource:
    with database().read() as session:
        row = _row(session, artifact_id)
        content, status, place = content_of(row), row.status, place_of_content(row)
    if content is None or status != ArtifactStatus.READY:
        raise refused(f"{artifact_id}: is {status}; must be ready to be copied")
    return open_copy(store, place, content)


def _secret(artifact_id: str, name: str | None) -> str | None:
    """The value of a secret of the artifact's project. Raises: ApplicationError `Refused`."""
    if name is None:
        return None
    with database().read() as session:
        project_id = _row(session, artifact_id).project_id
        value = project_secret(session, f"projects/{project_id}/{name}")
    if value is None:
        raise refused(f"{artifact_id}: the project has no secret {name}; set it, then try again")
    return value


def _parts(command: TransferArtifact, source: UploadSource) -> list[Part]:
    query = select(ArtifactPart).where(ArtifactPart.artifact_id == command.artifact_id)
    with database().read() as session:
        rows = session.exec(query.order_by(col(ArtifactPart.index))).all()
        parts = [Part(sha256=row.sha256, size_bytes=row.size_bytes) for row in rows]
        indices = [row.index for row in rows]
    if indices != list(range(source.part_count or 0)):
        raise refused(f"asked for {source.part_count} parts, found {len(indices)}")
    return parts


def _most_bytes(session: Session, artifact_id: str) -> int:
    return min(settings().artifact_max_bytes, room_of_artifact(session, _row(session, artifact_id)))


def _row(session: Session, artifact_id: str) -> ArtifactRow:
    row = session.get(table_of_artifact(artifact_id), artifact_id)
    if row is None:
        raise ApplicationError(f"{artifact_id}: there is no such artifact", type=NOT_FOUND)
    return row


def _is_removed(artifact_id: str) -> bool:
    """Whether what an attempt stores that was given up is stored after the removal."""
    with database().read() as session:
        status = _row(session, artifact_id).status
    return status in (ArtifactStatus.REMOVING, ArtifactStatus.ARCHIVED)
