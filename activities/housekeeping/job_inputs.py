"""Housekeeping: removing the datasets that were made for jobs whose use of them has ended."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from activities.db.session import database
from activities.db.tables import ArtifactUse, Dataset, Job, OutboxRow
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import enqueue, is_waiting
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus

BATCH = 500
_THERE = tuple(
    status.value
    for status in ArtifactStatus
    if status not in (ArtifactStatus.REMOVING, ArtifactStatus.ARCHIVED)
)
_OPEN = tuple(status.value for status in JobStatus if not status.is_final)
_REMOVE = "remove"


def remove_job_inputs(now: datetime) -> int:
    """Ask for the removal of the inputs that no open job uses; return of how many.

    Their own workflows remove them, once they have found again that nobody uses them.
    """
    removed, after = 0, ""
    while True:
        unused = select(Dataset.id).where(col(Dataset.id) > after, *_is_unused())
        with database().read() as session:
            ids = session.exec(unused.order_by(col(Dataset.id)).limit(BATCH)).all()
        if not ids:
            return removed
        with database().write() as session:
            requests = _ask(session, ids, now)
        relay_soon(requests)
        removed, after = removed + len(requests), ids[-1]


def _ask(session: Session, ids: Sequence[str], now: datetime) -> list[str]:
    """Signal those that are unused still; they are locked, so that no job begins to use them."""
    locked = select(Dataset.id).where(col(Dataset.id).in_(ids), *_is_unused())
    found = session.exec(locked.order_by(col(Dataset.id)).with_for_update()).all()
    asked = select(OutboxRow.resource_id).where(
        col(OutboxRow.resource_id).in_(found), OutboxRow.verb == _REMOVE, is_waiting()
    )
    waiting = set(session.exec(asked))
    return [
        enqueue(session, each, _REMOVE, Removal(), now) for each in found if each not in waiting
    ]


def _is_unused() -> tuple[ColumnElement[bool], ...]:
    used = (
        select(ArtifactUse.artifact_id)
        .join(Job, col(Job.id) == ArtifactUse.job_id)
        .where(ArtifactUse.artifact_id == Dataset.id, col(Job.status).in_(_OPEN))
    )
    return (
        col(Dataset.made_for_job_id).is_not(None),
        col(Dataset.status).in_(_THERE),
        ~used.exists(),
    )
