"""Restarts of lost workflows from their rows, with the progress that the rows hold."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import LifecycleRow, OutboxRow
from activities.lifecycles.kinds import KIND_BY_NOUN, is_open
from activities.lifecycles.lost_workflows import Known, slots
from activities.outbox.dispatcher import relay_soon
from activities.outbox.workflow_starts import WorkflowStart, start_workflow
from activities.temporal.client import client, limited
from workflows.contracts.lifecycles import noun_of


@dataclass(frozen=True)
class Lost:
    """A row whose workflow does not run (or is stale), and what Temporal knows of that."""

    resource_id: str
    known: Known


def restart_of(
    session: Session, row: LifecycleRow, *, ended_by_person: bool = False
) -> WorkflowStart[Any]:
    """The start that continues a row's lifecycle after its last recorded step.

    ended_by_person: whether a person has ended the workflow in Temporal, which ends a job; anything
    else is adopted.
    """
    kind = KIND_BY_NOUN[noun_of(row.id).name]
    start = kind.start(session, row)
    if row.sequence == 0 or (row.status == "new" and kind.end is None):
        return start
    argument = kind.resume(session, row, start.argument)
    if ended_by_person and kind.end is not None:
        argument = kind.end(argument)
    return replace(start, argument=argument)


async def restart_all(lost: Sequence[Lost], *, adopts_all: bool) -> list[str]:
    """Restart these lifecycles; return the ids of those that were."""

    async def one(found: Lost) -> bool:
        async with slots():
            try:
                return await _restart(found, adopts_all=adopts_all)
            except (RPCError, ApplicationError, ValueError, LookupError, TypeError) as cause:
                # The next reconciliation, minutes later, tries this one again.
                activity.logger.warning("%s was not restarted: %s", found.resource_id, cause)
                return False

    done = await asyncio.gather(*(one(found) for found in lost))
    return [found.resource_id for found, was in zip(lost, done, strict=True) if was]


async def _restart(lost: Lost, *, adopts_all: bool) -> bool:
    """Restart a lifecycle from its row; False when it has ended meanwhile."""
    by_person = lost.known.ended_by_person and not adopts_all
    found = await asyncio.to_thread(_start, lost, by_person)
    if found is None:
        return False
    start, unheard = found
    if not lost.known.runs:  # After the start, a kill of this process would lose them for good.
        await asyncio.to_thread(_deliver_again, unheard)
    policy = WorkflowIDConflictPolicy
    call = start_workflow(
        client(),
        start,
        id_conflict_policy=policy.TERMINATE_EXISTING if lost.known.runs else policy.USE_EXISTING,
        static_summary=f"{start.summary}, restarted by the reconciliation",
    )
    await limited(call, f"{start.id}: start again")
    if lost.known.runs:  # Before the start, the stale workflow would take them.
        await asyncio.to_thread(_deliver_again, unheard)
    relay_soon(unheard)
    return True


def _start(lost: Lost, by_person: bool) -> tuple[WorkflowStart[Any], list[str]] | None:
    """The restart from the present row, and the outbox rows of the signals to deliver again.

    None: the lifecycle has ended since it was listed, or its workflow has taken a step since then
    and is not stale.
    """
    with database().read() as session:
        row = _still_open(session, lost.resource_id)
        if row is None or (lost.known.runs and not lost.known.is_stale(row.status)):
            return None
        return restart_of(session, row, ended_by_person=by_person), _unheard(session, row)


def _unheard(session: Session, row: LifecycleRow) -> list[str]:
    """The outbox rows of the signals that the lost workflow has not acted upon.

    It has recorded no step since their delivery, and whoever acts upon a signal records a step.
    """
    query = select(OutboxRow.id).where(
        col(OutboxRow.resource_id) == row.id,
        col(OutboxRow.verb) != "start",
        col(OutboxRow.delivered_at) >= row.updated_at,
    )
    return list(session.exec(query.order_by(col(OutboxRow.created_at))).all())


def _deliver_again(request_ids: Sequence[str]) -> None:
    if not request_ids:
        return
    with database().write() as session:
        session.execute(
            update(OutboxRow)
            .where(col(OutboxRow.id).in_(request_ids))
            .values(delivered_at=None, attempts=0, next_attempt_at=None)
        )


def _still_open(session: Session, resource_id: str) -> LifecycleRow | None:
    kind = KIND_BY_NOUN[noun_of(resource_id).name]
    query = select(kind.table).where(col(kind.table.id) == resource_id, is_open(kind))
    row: LifecycleRow | None = session.exec(query).first()
    return row
