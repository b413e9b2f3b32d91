"""Housekeeping: removing rows, uploads and snapshots whose retention has passed.

Rows are found in a reading session and deleted by id, some hundred in a transaction, so that no
other writer waits long.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import CursorResult, delete, func, or_, tuple_
from sqlmodel import Session, col, select
from temporalio import activity

from activities.accounts import audit
from activities.db.session import advisory_lock, database
from activities.db.tables import (
    DeploymentTarget,
    DeviceDeployment,
    IdempotencyKey,
    Invitation,
    Job,
    OutboxRow,
    Upload,
    UsedLink,
)
from activities.housekeeping.addresses import remove_addresses
from activities.housekeeping.job_inputs import remove_job_inputs
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import code_name, states_of, upload_lock
from activities.storage.state_snapshots import jobs_with_copies
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.lifecycles import DEPLOYMENT
from workflows.contracts.statuses import JobStatus
from workflows.effects.housekeeping import ExpiredRemoved, RemoveExpired

DELIVERED_RETENTION = timedelta(days=7)
IDEMPOTENCY_RETENTION = timedelta(hours=48)
LINK_RETENTION = timedelta(hours=1)
"""After a used link has expired, because clocks differ."""
INVITATION_RETENTION = timedelta(days=30)
"""After an invitation was accepted or withdrawn, or has expired: the inviter sees how it ended."""
TARGET_RETENTION = timedelta(days=90)
"""After the end of a deployment, whose counts and events stay; a fleet has thousands of devices."""
UPLOAD_RETENTION = timedelta(days=30)
SNAPSHOT_RETENTION = timedelta(hours=1)
"""After the end of a job, which removes them itself unless its workflow is lost just then."""
AUDIT_RETENTION = timedelta(days=400)
"""Somewhat more than a year, so that a yearly review has the whole year.

The database itself refuses the removal of entries that are younger than a day less.
"""
ABANDONED_REMOVAL = timedelta(minutes=10)
"""After this time nothing is left of an attempt that was to remove an upload's bytes."""
BATCH = 500
_OPEN = tuple(status.value for status in JobStatus if not status.is_final)


@activity.defn
def remove_expired(_: RemoveExpired) -> ExpiredRemoved:
    """Remove what has passed its retention; a second call goes on where the first one ended."""
    now = datetime.now(UTC)
    with beating_aside():
        return ExpiredRemoved(
            outbox_rows=sum(_batches(_delivered, now - DELIVERED_RETENTION)),
            idempotency_keys=sum(_batches(_keys, now - IDEMPOTENCY_RETENTION)),
            used_links=sum(_batches(_used_links, now - LINK_RETENTION)),
            invitations=sum(_batches(_ended_invitations, now - INVITATION_RETENTION)),
            deployment_targets=sum(_batches(_ended_targets, now - TARGET_RETENTION)),
            audit_entries=sum(_remove_audit_entries(now - AUDIT_RETENTION)),
            uploads=_remove_uploads(now),
            job_inputs=remove_job_inputs(now),
            jobs_with_snapshots=sum(_remove_snapshots(now - SNAPSHOT_RETENTION)),
            postal_addresses=remove_addresses(now),
        )


Found = tuple[Any, list[Any]]
"""The condition of rows to delete, and the keys for which it was made."""


def _batches(find: Callable[[Session, datetime], Found], before: datetime) -> Iterator[int]:
    """Delete batch after batch; yield the number of rows of each."""
    while True:
        with database().read() as session:
            statement, keys = find(session, before)
        if not keys:
            return
        with database().write() as session:
            deleted = session.execute(statement)
        yield deleted.rowcount if isinstance(deleted, CursorResult) else 0
        if len(keys) < BATCH:
            return


def _delivered(session: Session, before: datetime) -> Found:
    delivered_at = col(OutboxRow.delivered_at)
    query = select(OutboxRow.id).where(delivered_at < before).order_by(delivered_at).limit(BATCH)
    ids = list(session.exec(query))
    return delete(OutboxRow).where(col(OutboxRow.id).in_(ids)), ids


def _keys(session: Session, before: datetime) -> Found:
    """The creation is compared again, in case that a key was used anew."""
    created_at = col(IdempotencyKey.created_at)
    key = tuple_(col(IdempotencyKey.account_id), col(IdempotencyKey.key))
    query = select(IdempotencyKey.account_id, IdempotencyKey.key).where(created_at < before)
    keys = [tuple(row) for row in session.execute(query.order_by(created_at).limit(BATCH))]
    return delete(IdempotencyKey).where(key.in_(keys), created_at < before), keys


def _used_links(session: Session, before: datetime) -> Found:
    expires_at, link = col(UsedLink.expires_at), col(UsedLink.link_sha256)
    query = select(UsedLink.link_sha256).where(expires_at < before).order_by(expires_at)
    links = list(session.exec(query.limit(BATCH)))
    return delete(UsedLink).where(link.in_(links)), links


def _ended_invitations(session: Session, before: datetime) -> Found:
    """Those that ended before; the members that they have made stay."""
    accepted_at, withdrawn_at = col(Invitation.accepted_at), col(Invitation.withdrawn_at)
    # What is neither accepted nor withdrawn by its expiry never will be.
    ended_at = func.coalesce(accepted_at, withdrawn_at, col(Invitation.expires_at))
    ids = list(session.exec(select(Invitation.id).where(ended_at < before).limit(BATCH)))
    return delete(Invitation).where(col(Invitation.id).in_(ids)), ids


def _ended_targets(session: Session, before: datetime) -> Found:
    """The devices of deployments that have ended before."""
    target, row = DeploymentTarget, DeviceDeployment
    query = (
        select(target.deployment_id, target.device_id)
        .join(row, col(row.id) == col(target.deployment_id))
        .where(col(row.status).in_(sorted(DEPLOYMENT.final_statuses)), col(row.updated_at) < before)
        .limit(BATCH)
    )
    keys = [tuple(found) for found in session.execute(query)]
    key = tuple_(col(target.deployment_id), col(target.device_id))
    return delete(target).where(key.in_(keys)), keys


def _remove_audit_entries(before: datetime) -> Iterator[int]:
    """Remove batch after batch; yield the number of entries of each."""
    while True:
        with database().write() as session:
            removed = audit.remove_before(session, before, BATCH)
        yield removed
        if removed < BATCH:
            return


def _remove_snapshots(before: datetime) -> Iterator[int]:
    """Remove the state snapshots of ended jobs, batch after batch; yield the number of jobs."""
    store = blob_store(settings().storage)
    kept = jobs_with_copies(store)
    for start in range(0, len(kept), BATCH):
        ended = select(Job.id).where(
            col(Job.id).in_(kept[start : start + BATCH]),
            col(Job.status).not_in(_OPEN),
            col(Job.updated_at) < before,
        )
        with database().read() as session:
            ids = session.exec(ended).all()
        for job_id in ids:
            store.delete_folder(states_of(job_id))
        yield len(ids)


def _remove_uploads(now: datetime) -> int:
    """Remove uploads that no open job names and no job has named for their retention."""
    with database().read() as session:
        unused = _unused_uploads(session, now - UPLOAD_RETENTION)
        abandoned = session.exec(
            select(Upload.sha256).where(col(Upload.removed_at) < now - ABANDONED_REMOVAL).distinct()
        ).all()
    removed = sum(_finish_removal(sha256) for sha256 in abandoned)
    for sha256, ids in unused.items():
        with database().write() as session:
            deleted, is_last = _begin_removal(session, sha256, ids, now)
        removed += deleted + (_finish_removal(sha256) if is_last else 0)
    return removed


def _last_named() -> Any:
    return func.coalesce(col(Upload.named_at), col(Upload.created_at))


def _unused_uploads(session: Session, before: datetime) -> dict[str, list[str]]:
    """SHA-256 to the ids of uploads to remove."""
    query = select(Upload.id, Upload.sha256).where(
        _last_named() < before, col(Upload.removed_at).is_(None)
    )
    old = {row.id: row.sha256 for row in session.execute(query)}
    if not old:
        return {}
    spec = col(Job.spec)
    code = spec["code"]["upload_id"].as_string()
    data = spec["data"]["input"]["upload_id"].as_string()
    names = select(code, data).where(
        col(Job.status).in_(_OPEN), or_(code.is_not(None), data.is_not(None))
    )
    named = {upload_id for row in session.execute(names.distinct()) for upload_id in row}
    unused: dict[str, list[str]] = {}
    for upload_id, sha256 in old.items():
        if upload_id not in named:
            unused.setdefault(sha256, []).append(upload_id)
    return unused


def _begin_removal(
    session: Session, sha256: str, ids: list[str], now: datetime
) -> tuple[int, bool]:
    """Delete these uploads of the same bytes, or mark them if no other upload has the bytes.

    The lock excludes a new upload of the bytes. A job that names one of them meanwhile has locked
    its row and written the time, so what was found before is compared again.

    Returns how many are deleted, and whether they are marked, and so their bytes can be removed.
    """
    advisory_lock(session, upload_lock(sha256))
    rows = session.exec(
        select(Upload).where(Upload.sha256 == sha256).order_by(col(Upload.id)).with_for_update()
    ).all()
    unused = [
        row
        for row in rows
        if row.id in ids
        and row.removed_at is None
        and (row.named_at or row.created_at) < now - UPLOAD_RETENTION
    ]
    kept = len(rows) - len(unused)
    for row in unused:
        if kept:
            session.delete(row)
        else:
            row.removed_at = now
    return (len(unused), False) if kept else (0, bool(unused))


def _finish_removal(sha256: str) -> int:
    """Remove the bytes of marked uploads, then their rows; return the number of these."""
    blob_store(settings().storage).delete(code_name(sha256))
    marked = (col(Upload.sha256) == sha256, col(Upload.removed_at).is_not(None))
    with database().write() as session:
        deleted = session.execute(delete(Upload).where(*marked))
    return deleted.rowcount if isinstance(deleted, CursorResult) else 0
