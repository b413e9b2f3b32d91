"""The content of volumes that jobs write to: recorded for the one writer alone."""

from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col, select
from temporalio import activity

from activities.accounts.stored_bytes import follow_each_other, refusal_of_artifact
from activities.db.session import database
from activities.db.tables import ARTIFACT_TABLES, Volume, VolumeHold
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.contents import remove_content, remove_older_contents
from activities.storage.names import artifact_manifest_name, volume_place
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.artifacts import ArtifactStatus, VolumeAccess
from workflows.effects.volumes import RecordVolume, VolumeRecorded

_COPIED = (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING)


@activity.defn
def record_volume(command: RecordVolume) -> VolumeRecorded:
    """Make what is stored the content of a volume, if the attempt of the job still writes it.

    A repeat changes nothing. What an earlier content has left in the store goes, unless it is being
    copied now; then it goes with the next one. What is refused goes as well, also for want of room.
    """
    place = volume_place(command.volume_id, command.place)
    with beating_aside():
        store = blob_store(settings().storage)
        is_there = store.size(artifact_manifest_name(place)) is not None
        with database().write() as session:
            refusal = _refusal(session, command) or _refusal_of_room(session, command)
            if refusal is None and not is_there:
                refusal = f"volume {command.volume_id}: had no room for it, and it is gone"
            if refusal is None:
                _write(session, command)
        if refusal is not None:
            _discard(command)
            return VolumeRecorded(refusal=refusal)
        with database().read() as session:
            is_copied = _is_copied(session, command.volume_id)
        if not is_copied:
            remove_older_contents(store, command.volume_id, command.place)
    return VolumeRecorded()


def _refusal(session: Session, command: RecordVolume) -> str | None:
    """Why the content may not be that of the volume, whose row is locked; None: it may be."""
    found = session.get(Volume, command.volume_id)
    if found is not None:
        follow_each_other(session, found.account_id)
    row = session.get(Volume, command.volume_id, with_for_update=True, populate_existing=True)
    if row is None or row.status != ArtifactStatus.READY:
        status = "not there" if row is None else row.status
        return f"volume {command.volume_id}: must be ready to be written, is {status}"
    query = select(VolumeHold.job_id).where(
        VolumeHold.volume_id == command.volume_id,
        VolumeHold.job_id == command.job_id,
        VolumeHold.attempt == command.attempt,
        VolumeHold.access == VolumeAccess.WRITE,
        col(VolumeHold.released_at).is_(None),
    )
    if session.exec(query).first() is None:
        return (
            f"volume {row.name}: asked to be written by attempt {command.attempt} of "
            f"{command.job_id}, which does not hold it any more"
        )
    if row.content_place > command.place:
        return f"volume {row.name}: has a newer content, of {row.written_at}"
    return None


def _refusal_of_room(session: Session, command: RecordVolume) -> str | None:
    """Why the account has no room for the content; None: it has, or it takes no more than before.

    What the account had room for when the run began may have gone to others since.
    """
    row = session.get_one(Volume, command.volume_id)
    more = command.content.size_bytes - (row.size_bytes or 0)
    return refusal_of_artifact(session, row.account_id, more) if more > 0 else None


def _write(session: Session, command: RecordVolume) -> None:
    size = command.content.size_bytes
    values: dict[str, Any] = {
        "content_sha256": command.content.sha256,
        "content_place": command.place,
        "size_bytes": size,
        "bytes_transferred": size,
        "total_bytes": size,
        "unpacked_bytes": command.content.unpacked_bytes,
        "file_count": command.content.file_count,
        "written_at": command.at,
        "written_by": command.job_id,
    }
    session.execute(update(Volume).where(col(Volume.id) == command.volume_id).values(values))


def _discard(command: RecordVolume) -> None:
    """Remove what was refused, for good: a volume that is being removed may yet stay."""
    with database().read() as session:
        row = session.get(Volume, command.volume_id)
        stays = row is not None and (
            row.content_place == command.place or row.status == ArtifactStatus.REMOVING
        )
    if not stays:
        place = volume_place(command.volume_id, command.place)
        remove_content(blob_store(settings().storage), place)


def _is_copied(session: Session, volume_id: str) -> bool:
    """Whether an artifact of the same account is being made of the volume's content."""
    row = session.get_one(Volume, volume_id)
    for table in ARTIFACT_TABLES.values():
        query = select(table.source).where(
            table.account_id == row.account_id, col(table.status).in_(_COPIED)
        )
        if any(source.get("artifact_id") == volume_id for source in session.exec(query)):
            return True
    return False
