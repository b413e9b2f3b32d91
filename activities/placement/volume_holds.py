"""The holds of volumes by allocations: written and released together with them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, not_, update
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, Job, Volume, VolumeHold
from activities.placement.allocation_states import is_live
from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.placement import PendingJob
from workflows.rules.placement.volumes import VolumeHolder

_FIRST_WORKER = 0
"""Jobs with volumes are notebooks and endpoints, which have one worker."""


def volume_holders(
    session: Session, volume_ids: Collection[str]
) -> dict[str, tuple[VolumeHolder, ...]]:
    """The jobs that have each of these volumes now, first come first."""
    found: dict[str, list[VolumeHolder]] = defaultdict(list)
    if volume_ids:
        query = (
            select(VolumeHold.volume_id, Job.id, Job.name, VolumeHold.access)
            .join(Job, col(Job.id) == VolumeHold.job_id)
            .join(Allocation, col(Allocation.id) == VolumeHold.allocation_id)
            .where(*_held(volume_ids), is_live())
            .order_by(col(VolumeHold.allocation_id))
        )
        for volume_id, job_id, name, access in session.exec(query):
            found[volume_id].append(VolumeHolder(job_id, name, VolumeAccess(access)))
    return {volume_id: tuple(holders) for volume_id, holders in found.items()}


def hold_volumes(
    session: Session, allocations: Sequence[dict[str, Any]], jobs: Mapping[str, PendingJob]
) -> str | None:
    """Hold the volumes of these jobs by their allocations, which are written already.

    Returns why that cannot be, because another job has one of them meanwhile; None: they are held.
    Raises: IntegrityError, when another transaction lets a second job write to a volume.
    """
    wanted = [
        (row, volume_id, access)
        for row in allocations
        if row["worker"] == _FIRST_WORKER
        for volume_id, access in jobs[row["job_id"]].demand.volumes
    ]
    ids = sorted({volume_id for _, volume_id, _ in wanted})
    if not ids:
        return None
    # Readers have no unique index against a writer, so whoever holds a volume locks its row.
    locked = select(Volume.id).where(col(Volume.id).in_(ids)).order_by(col(Volume.id))
    session.exec(locked.with_for_update()).all()
    _release_left(session, ids, allocations[0]["created_at"])
    held = volume_holders(session, ids)
    for row, volume_id, access in wanted:
        others = [holder for holder in held.get(volume_id, ()) if holder.excludes(access)]
        if others:
            return f"volume {volume_id}: asked to {access} by {row['job_id']}; {others[0]}"
    rows = [
        {
            "allocation_id": row["id"],
            "volume_id": volume_id,
            "job_id": row["job_id"],
            "attempt": row["attempt"],
            "access": access.value,
        }
        for row, volume_id, access in wanted
    ]
    session.execute(insert(VolumeHold), rows)
    return None


def _held(volume_ids: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return col(VolumeHold.volume_id).in_(volume_ids), col(VolumeHold.released_at).is_(None)


def _release_left(session: Session, volume_ids: Collection[str], at: datetime) -> None:
    """Release what a worker of an earlier release has left, which knows allocations alone."""
    own = col(Allocation.id) == VolumeHold.allocation_id
    left = select(Allocation.id).where(own, not_(is_live())).exists()
    session.execute(
        update(VolumeHold).where(*_held(volume_ids), left).values(released_at=at),
        execution_options={"synchronize_session": False},
    )


def release_holds(session: Session, allocation_ids: Collection[str], at: datetime) -> None:
    """Release what these allocations hold, as their runs have ended."""
    own = col(VolumeHold.allocation_id).in_(allocation_ids)
    session.execute(update(VolumeHold).where(own).values(released_at=at))


def forget_holds(session: Session, allocation_ids: Collection[str]) -> None:
    """Delete what allocations hold that are being withdrawn, because no run has begun."""
    session.execute(delete(VolumeHold).where(col(VolumeHold.allocation_id).in_(allocation_ids)))
