"""Datasets, models, checkpoints and volumes: reads, creation, uploads in parts, removal."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from sqlalchemy import ColumnElement, false
from sqlmodel import Session, col, select

from activities.accounts.stored_bytes import follow_each_other, refusal_of_artifact
from activities.artifacts.creation import NewArtifact, refusal_of_new, row_of_new
from activities.artifacts.starts import SOURCES
from activities.artifacts.uses import Users, users_of
from activities.db import tables
from activities.db.session import database
from activities.devices.revisions import configurations_using
from activities.placement.volume_holds import volume_holders
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.contents import PART_BYTES, READ_BYTES, ContentReader, manifest_of
from activities.storage.names import artifact_of, artifact_part_name
from api.authorization import USE_OF_SECRETS, Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas.artifacts import (
    Artifact,
    ArtifactCreation,
    ArtifactPart,
    ArtifactParts,
    UploadCompletion,
    VolumeHolder,
)
from api.services.artifact_datastores import check_regional_source
from api.services.job_references import personal_project
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import (
    hold_project,
    lifecycle,
    project_for,
    projects_of,
    visible_artifact,
    visible_job,
    visible_jobs,
)
from api.services.third_party_keys import check_source_key, with_source_key
from api.services.uploads import Received
from workflows.contracts.artifacts import (
    ArtifactSource,
    ArtifactStatus,
    EmptySource,
    HuggingFaceSource,
    JobSource,
    ObjectStoreSource,
    RetryTransfer,
    Source,
    UploadComplete,
    UploadSource,
)
from workflows.contracts.lifecycles import VOLUME, LifecycleNoun, noun_of
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus
from workflows.rules.counts import some_of
from workflows.rules.placement import volumes as placement

Row = tables.ArtifactRow
_SENDING = (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING)
JOBS_SHOWN = 20
"""How many of the jobs of an artifact are listed."""
_IN_USE_SHOWN = 5


def table_of(noun: LifecycleNoun) -> type[Row]:
    """The table of one noun among the artifacts."""
    return tables.ARTIFACT_TABLES[noun.plural]


def artifact_responses(session: Session, caller: Caller, rows: Sequence[Row]) -> list[Artifact]:
    """The artifacts, with the ids of those of their jobs alone that the caller may read."""
    may_show = readable_jobs(session, caller)
    users = users_of(session, [row.id for row in rows], JOBS_SHOWN, may_show)
    volumes = [row for row in rows if isinstance(row, tables.Volume)]
    holders = volume_holders(session, [row.id for row in volumes])
    shown = [each.job_id for found in holders.values() for each in found[:JOBS_SHOWN]]
    shown += [row.written_by for row in volumes if row.written_by is not None]
    readable = _among(session, shown, may_show)
    return [
        _response(row, users.get(row.id, Users()), holders.get(row.id, ()), readable)
        for row in rows
    ]


def artifact_response(session: Session, caller: Caller, row: Row) -> Artifact:
    return artifact_responses(session, caller, [row])[0]


def readable_jobs(session: Session, caller: Caller) -> ColumnElement[bool]:
    """The condition that the caller may read a job, by membership and by the scope of the key."""
    return visible_jobs(session, caller) if caller.may("jobs:read") else false()


def _among(session: Session, job_ids: Collection[str], may_show: ColumnElement[bool]) -> set[str]:
    if not job_ids:
        return set()
    query = select(tables.Job.id).where(col(tables.Job.id).in_(job_ids), may_show)
    return set(session.exec(query))


def find(session: Session, caller: Caller, noun: LifecycleNoun, artifact_id: str) -> Row:
    """An artifact of this noun that the caller may read. Raises: Problem `not-found`."""
    _must_be(noun, artifact_id)
    return visible_artifact(session, caller, artifact_id)


def create_artifact(
    context: ChangeContext, noun: LifecycleNoun, asked: ArtifactCreation
) -> Artifact:
    """Create an artifact, whose content is then transferred from its source.

    Raises: Problem `invalid-request`, `not-found`, `forbidden`, `conflict`, `limit-reached`,
    `storage-exhausted`.
    """
    session = context.session
    project = _project(context, noun, asked.project_id)
    hold_project(session, project)
    _check_source(context, noun, project, asked)
    check_regional_source(context, project, asked.source)
    new = NewArtifact(table_of(noun), noun, project, asked.name, context.now)
    if (refusal := refusal_of_new(session, new)) is not None:
        raise Problem(refusal.kind, refusal.reason)
    creator = (context.caller.user_id, context.caller.account_id)
    row = row_of_new(new, creator, with_source_key(context, asked.source, project))
    context.concerned_account_id = row.account_id
    context.create(row)
    return _response(row, Users())


def remove_artifact(context: ChangeContext, noun: LifecycleNoun, artifact_id: str) -> Artifact:
    """Remove an artifact with its content; a second call changes nothing.

    Raises: Problem `not-found`, `forbidden`; `conflict`, when jobs use it that have not ended, or
    device configurations.
    """
    row = _changeable(context, noun, artifact_id)
    may_show = readable_jobs(context.session, context.caller)
    users = users_of(context.session, [row.id], _IN_USE_SHOWN, may_show).get(row.id)
    if row.status not in GONE:
        if users is not None:
            raise Problem("conflict", f"{noun.name} {row.name}: is used by {users}")
        _check_no_configuration(context, noun, row)
        context.tell(row.id, "remove", Removal(requested_by=context.caller.user_id))
    return artifact_response(context.session, context.caller, row)


def _check_no_configuration(
    context: ChangeContext, noun: LifecycleNoun, row: tables.ArtifactRow
) -> None:
    """Raises: Problem `conflict`, which names device configurations to their own account alone."""
    used = configurations_using(context.session, row.id)
    if not used:
        return
    is_own = row.account_id == context.caller.account_id
    named = some_of([f"{each.name} ({each.id})" for each in used]) if is_own else str(len(used))
    detail = f"{noun.name} {row.name}: is used by device configuration {named}"
    raise Problem("conflict", detail)


def retry_artifact(context: ChangeContext, noun: LifecycleNoun, artifact_id: str) -> Artifact:
    """Try a failed transfer again.

    Raises: Problem `not-found`; `forbidden`, `invalid-request`, also for the source; `conflict`.
    """
    row = _changeable(context, noun, artifact_id)
    if row.status != ArtifactStatus.FAILED:
        raise wrong_state(noun.name, row, "failed")
    project = context.session.get_one(tables.Project, row.project_id)
    # Whoever tries again reads the source, and may have lost what the creator had, or never had it.
    source = SOURCES.validate_python(row.source)
    _check_access(context, project, source)
    check_regional_source(context, project, source)
    check_source_key(context, source, project)
    context.tell(row.id, "retry", RetryTransfer(requested_by=context.caller.user_id))
    return artifact_response(context.session, context.caller, row)


def complete_upload(
    context: ChangeContext, noun: LifecycleNoun, artifact_id: str, asked: UploadCompletion
) -> Artifact:
    """Say that all parts of an upload are there; the content is checked then.

    Raises: Problem `not-found`, `forbidden`, `conflict`, `invalid-request`.
    """
    row = _changeable(context, noun, artifact_id)
    source = _upload_of(row)
    if source.part_count != asked.part_count:
        _must_be_sent(row, source)
        _check_parts(context.session, row, asked.part_count)
        complete = UploadSource(type="upload", part_count=asked.part_count)
        row.source = complete.model_dump(mode="json")
        context.session.add(row)
        context.tell(row.id, "complete", UploadComplete(source=complete))
    return artifact_response(context.session, context.caller, row)


def check_part(caller: Caller, noun: LifecycleNoun, artifact_id: str, size_bytes: int) -> None:
    """Check that a part may be stored, before its bytes are. Blocking.

    Raises: Problem `not-found`, `forbidden`, `conflict`, `invalid-request`, `storage-exhausted`.
    """
    _must_be(noun, artifact_id)
    if size_bytes == 0:
        raise invalid(field_error("body", "has at least one byte"))
    with database().read() as session:
        row = visible_artifact(session, caller, artifact_id, "all")
        _must_be_sent(row, _upload_of(row))
        _must_have_room(session, row, size_bytes)


def _must_have_room(session: Session, row: Row, size_bytes: int) -> None:
    """Raises: Problem `storage-exhausted`, `too-large`."""
    limit = settings().artifact_max_bytes
    if row.bytes_transferred + size_bytes > limit:
        detail = (
            f"{row.id}: asked for {size_bytes} bytes more; found {row.bytes_transferred}, replaced "
            f"parts among them, at most {limit} in all (BASELOAD_ARTIFACT_MAX_BYTES)"
        )
        raise Problem("too-large", detail)
    if (refusal := refusal_of_artifact(session, row.account_id, size_bytes)) is not None:
        raise Problem("storage-exhausted", refusal)


def folder_of(artifact_id: str) -> Path | None:
    """The folder in which parts are received; None: that of temporary files.

    In a local store it is the artifact's own: nothing is copied, and what a killed process leaves
    goes with the artifact. Blocking.
    """
    root = blob_store(settings().storage).folder
    if root is None:
        return None
    folder = root / artifact_of(artifact_id)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def store_part(artifact_id: str, received: Received) -> None:
    """Store the bytes of a part. Blocking."""
    name = artifact_part_name(artifact_id, received.sha256)
    store = blob_store(settings().storage)
    if store.size(name) != received.size_bytes:
        store.take_file(name, received.path)


def discard_part(artifact_id: str, received: Received) -> None:
    """Remove the bytes of a part that was refused when they were stored, if no other is the same.

    Blocking.
    """
    named = select(tables.ArtifactPart.index).where(
        tables.ArtifactPart.artifact_id == artifact_id,
        tables.ArtifactPart.sha256 == received.sha256,
    )
    with database().read() as session:
        row = session.get(tables.table_of_artifact(artifact_id), artifact_id)
        is_named = session.exec(named).first() is not None
    if row is None or row.status in GONE or not is_named:
        name = artifact_part_name(artifact_id, received.sha256)
        blob_store(settings().storage).delete(name)


def add_part(
    context: ChangeContext, noun: LifecycleNoun, place: tuple[str, int], received: Received
) -> ArtifactPart:
    """Add the row of a stored part, in place of an earlier one of its index.

    place: the artifact and the index. Raises: Problem, as `check_part`.
    """
    artifact_id, index = place
    session = context.session
    _must_be(noun, artifact_id)
    follow_each_other(session, visible_artifact(session, context.caller, artifact_id).account_id)
    row = _changeable(context, noun, artifact_id)
    _must_be_sent(row, _upload_of(row))
    part = session.get(tables.ArtifactPart, (artifact_id, index)) or tables.ArtifactPart(
        artifact_id=artifact_id, index=index, sha256="", size_bytes=0, created_at=context.now
    )
    if part.sha256 != received.sha256:
        # The part that it replaces stays stored, and counted, until the upload is complete.
        _must_have_room(session, row, received.size_bytes)
        row.bytes_transferred += received.size_bytes
    part.sha256, part.size_bytes = received.sha256, received.size_bytes
    session.add_all((part, row))
    context.resource_id = artifact_id
    return ArtifactPart(index=index, sha256=part.sha256, size_bytes=part.size_bytes)


def parts_of(session: Session, row: Row) -> ArtifactParts:
    """The parts of an upload that are stored."""
    own = select(tables.ArtifactPart).where(tables.ArtifactPart.artifact_id == row.id)
    found = session.exec(own.order_by(col(tables.ArtifactPart.index)))
    items = [
        ArtifactPart(index=part.index, sha256=part.sha256, size_bytes=part.size_bytes)
        for part in found
    ]
    return ArtifactParts(items=items, part_bytes=PART_BYTES)


def content_of(noun: LifecycleNoun, row: Row) -> Iterator[bytes]:
    """The content of an artifact as a tar, each part checked. Raises: Problem `conflict`."""
    if row.status != ArtifactStatus.READY or row.content_sha256 is None:
        raise wrong_state(noun.name, row, "ready")
    store = blob_store(settings().storage)
    place = tables.place_of_content(row)
    reader = ContentReader(store, place, manifest_of(store, place, row.content_sha256))
    return iter(lambda: reader.read(READ_BYTES), b"")


def _changeable(context: ChangeContext, noun: LifecycleNoun, artifact_id: str) -> Row:
    _must_be(noun, artifact_id)
    row = visible_artifact(context.session, context.caller, artifact_id, "all", locked=True)
    context.concerned_account_id = row.account_id
    return row


def _must_be(noun: LifecycleNoun, artifact_id: str) -> None:
    if not artifact_id.startswith(f"{noun.prefix}-"):
        raise missing(noun.name, artifact_id)


def _project(context: ChangeContext, noun: LifecycleNoun, project_id: str | None) -> tables.Project:
    wanted = project_id or personal_project(context)
    return project_for(context.session, context.caller, wanted, noun.name)


def _check_source(
    context: ChangeContext, noun: LifecycleNoun, project: tables.Project, asked: ArtifactCreation
) -> None:
    source = asked.source
    if isinstance(source, EmptySource) and noun is not VOLUME:
        raise invalid(field_error("source.type", "is empty for volumes alone", source.type))
    if isinstance(source, UploadSource) and source.part_count is not None:
        raise invalid(field_error("source.part_count", "is said when all parts are there"))
    _check_access(context, project, source)


def _check_access(context: ChangeContext, project: tables.Project, source: Source) -> None:
    """Check that the caller may use a source. Raises: Problem, which names what is lacking."""
    session = context.session
    if isinstance(source, JobSource):
        _may_read(context, "jobs")
        job = visible_job(session, context.caller, source.job_id)
        if job.project_id != project.id:
            raise invalid(field_error("source.job_id", f"is a job of project {project.id}", job.id))
        if job.status in GONE:
            raise Problem("conflict", f"job {job.name}: is {job.status}, and its output with it")
        if not JobStatus(job.status).is_final:
            detail = f"job {job.name}: is {job.status}; must have ended, for its output to be whole"
            raise Problem("conflict", detail)
    if isinstance(source, ObjectStoreSource | HuggingFaceSource) and source.secret is not None:
        _may_use_secrets(context, project)
        stored = f"projects/{project.id}/{source.secret}"
        if session.get(tables.StoredSecret, stored) is None:
            rule = f"is a secret of project {project.id}: baseload secret set"
            raise invalid(field_error("source.secret", rule, source.secret))
    if isinstance(source, ArtifactSource):
        _may_read(context, noun_of(source.artifact_id).plural)
        other = visible_artifact(session, context.caller, source.artifact_id)
        if other.status != ArtifactStatus.READY:
            raise Problem("conflict", f"{other.id}: is {other.status}; must be ready to be copied")


def _may_read(context: ChangeContext, plural: str) -> None:
    """Check that the key may read what is copied. Raises: Problem `forbidden`."""
    if not context.caller.may(f"{plural}:read"):
        detail = f"key {context.caller.key_id} lacks the scope {plural}:read of what is copied"
        raise Problem("forbidden", detail)


def _may_use_secrets(context: ChangeContext, project: tables.Project) -> None:
    """Check that the caller may use the project's secrets, as who may run jobs there may.

    Raises: Problem `forbidden`.
    """
    caller = context.caller
    if not caller.may(USE_OF_SECRETS):
        detail = f"key {caller.key_id} lacks the scope {USE_OF_SECRETS} of the source's secret"
        raise Problem("forbidden", detail)
    is_own = project.account_id == caller.account_id
    if not is_own and project.id not in projects_of(context.session, caller, "job", "all"):
        detail = f"project {project.id}: its secrets are used by members who may create its jobs"
        raise Problem("forbidden", detail)


def _upload_of(row: Row) -> UploadSource:
    if row.source.get("type") != "upload":
        raise Problem("conflict", f"{row.id}: its source is {row.source.get('type')}, no upload")
    return UploadSource.model_validate(row.source)


def _must_be_sent(row: Row, source: UploadSource) -> None:
    if source.part_count is not None:
        raise Problem("conflict", f"{row.id}: its upload is complete, {source.part_count} parts")
    if row.status not in _SENDING:
        raise Problem("conflict", f"{row.id}: is {row.status}; parts are taken while it is new")


def _check_parts(session: Session, row: Row, part_count: int) -> None:
    parts = parts_of(session, row).items
    found = {part.index for part in parts}
    lacking = [index for index in range(part_count) if index not in found]
    if lacking or len(parts) != part_count:
        some = f", lacking {', '.join(map(str, lacking[:5]))}" if lacking else ""
        rule = f"is the number of parts that are there, {len(parts)}{some}"
        raise invalid(field_error("part_count", rule, part_count))
    short = next((part for part in parts[:-1] if part.size_bytes != PART_BYTES), None)
    if short is not None:
        raise Problem(
            "conflict",
            f"{row.id}: part {short.index} has {short.size_bytes} bytes; all but the last have "
            f"{PART_BYTES}",
        )


def _response(
    row: Row,
    users: Users,
    holders: Sequence[placement.VolumeHolder] = (),
    readable: Collection[str] = (),
) -> Artifact:
    """readable: the ids that may be shown of the jobs that have a volume or have written it."""
    volume = row if isinstance(row, tables.Volume) else None
    shown = (
        "project_id", "source", "content_sha256", "size_bytes", "unpacked_bytes", "file_count",
        "bytes_transferred", "total_bytes",
    )  # fmt: skip
    return Artifact(
        **lifecycle(row),
        **{name: getattr(row, name) for name in shown},
        made_for_job_id=getattr(row, "made_for_job_id", None),
        job_ids=list(users.job_ids),
        job_count=users.count,
        holders=[
            VolumeHolder(job_id=_one_of(readable, each.job_id), access=each.access)
            for each in holders[:JOBS_SHOWN]
        ],
        holder_count=len(holders),
        written_at=volume and volume.written_at,
        written_by=volume and _one_of(readable, volume.written_by),
    )


def _one_of(job_ids: Collection[str], job_id: str | None) -> str | None:
    return job_id if job_id in job_ids else None
