"""Lifecycle reconciliation: rows compared with workflows, and lost workflows restarted."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.billing.job_billing import begin_billing, billing_id
from activities.billing.unbilled_jobs import lost_bills
from activities.db import tables
from activities.db.session import database
from activities.db.tables import OutboxRow
from activities.lifecycles.kinds import KIND_BY_NOUN, KINDS
from activities.lifecycles.restarts import Restart, restart_of
from activities.nodes.ephemeral import LEAVING, dismiss_ephemeral
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import is_waiting
from activities.outbox.workflow_starts import LifecycleKind
from activities.temporal.client import client, limited
from workflows.contracts import queues
from workflows.contracts.lifecycles import noun_of, workflow_id_of
from workflows.contracts.statuses import NodeType
from workflows.effects.reconciliation import (
    LostWorkflowsRestarted,
    RestartLostWorkflows,
)

ANNOUNCED_FOR = timedelta(days=7)
QUIET_FOR = timedelta(minutes=2)
CALLS_AT_ONCE = 16


@activity.defn
async def restart_lost_workflows(command: RestartLostWorkflows) -> LostWorkflowsRestarted:
    """Restart every open lifecycle whose workflow is not running, and lost job billings.

    Running workflows are listed once; only a row whose workflow is not in the list is checked by
    itself. Announcements that were not repeated for a week are deleted. Ephemeral nodes without a
    job are asked for their removal again.
    """
    await asyncio.to_thread(_forget_announcements)
    relay_soon(await asyncio.to_thread(_dismiss_idle))
    running = await _running(client())
    restarted: list[str] = []
    for kind in KINDS:
        after = ""
        while page := await asyncio.to_thread(_open_rows, kind, after, command.page_size):
            after = page[-1]
            missing = [found for found in page if workflow_id_of(found) not in running]
            restarted += await _restart_all(missing)
            activity.heartbeat(after)
    restarted += await _restart_billings(running)
    return LostWorkflowsRestarted(restarted=tuple(restarted))


def _forget_announcements() -> None:
    """Delete old announcements, since any machine may announce itself and none withdraws."""
    before = datetime.now(UTC) - ANNOUNCED_FOR
    with database().write() as session:
        session.execute(
            delete(tables.NodeAnnouncement).where(col(tables.NodeAnnouncement.last_at) < before)
        )


def _dismiss_idle() -> list[str]:
    """Request the removal of unused ephemeral nodes again, which was lost with a workflow."""
    now = datetime.now(UTC)
    asked = (
        select(OutboxRow.id)
        .where(col(OutboxRow.resource_id) == tables.Node.id, is_waiting())
        .exists()
    )
    quiet = select(tables.Node.id).where(
        tables.Node.type == NodeType.EPHEMERAL,
        col(tables.Node.status).not_in(LEAVING),
        col(tables.Node.updated_at) < now - QUIET_FOR,
        ~asked,
    )
    with database().write() as session:
        return dismiss_ephemeral(session, session.exec(quiet).all(), now)


async def _running(temporal: Client) -> set[str]:
    query = "ExecutionStatus = 'Running'"
    return {found.id async for found in temporal.list_workflows(query, page_size=1000)}


def _open_rows(kind: LifecycleKind[Any, Any], after: str, limit: int) -> list[str]:
    """Ids of open rows whose start was delivered and that did not change for `QUIET_FOR`."""
    table = kind.table
    undelivered = (
        select(OutboxRow.id)
        .where(col(OutboxRow.resource_id) == col(table.id), is_waiting())
        .exists()
    )
    query = (
        select(table.id)
        .where(
            col(table.id) > after,
            (col(table.sequence) > 0) | ~undelivered,
            col(table.updated_at) < datetime.now(UTC) - QUIET_FOR,
            _is_open(kind),
        )
        .order_by(col(table.id))
        .limit(limit)
    )
    with database().read() as session:
        return list(session.exec(query).all())


def _is_open(kind: LifecycleKind[Any, Any]) -> ColumnElement[bool]:
    """Whether a row has not ended: a failed node still has a workflow, a failed job has none."""
    ended = sorted(str(status) for status in kind.noun.final_statuses)
    return col(kind.table.status).not_in(ended)


async def _restart_all(resource_ids: Sequence[str]) -> list[str]:
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(resource_id: str) -> bool:
        async with slots:
            try:
                return await _restart(resource_id)
            except (RPCError, ApplicationError, ValueError, LookupError, TypeError) as cause:
                # The next reconciliation, minutes later, tries this one again.
                activity.logger.warning("%s was not restarted: %s", resource_id, cause)
                return False

    done = await asyncio.gather(*(one(resource_id) for resource_id in resource_ids))
    return [found for found, restarted in zip(resource_ids, done, strict=True) if restarted]


async def _restart_billings(running: Collection[str]) -> list[str]:
    """Restart lost job billings; return the ids of their workflows."""
    restarted: list[str] = []
    for bill in await asyncio.to_thread(lost_bills, running, QUIET_FOR):
        activity.heartbeat(bill.job_id)
        workflow_id = billing_id(bill.job_id)
        try:
            if not await _is_running(workflow_id):
                await begin_billing(bill)
                restarted.append(workflow_id)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("%s was not restarted: %s", workflow_id, cause)
    return restarted


async def _restart(resource_id: str) -> bool:
    """Restart a lifecycle from its row; False when its workflow runs or has ended meanwhile."""
    if await _is_running(workflow_id_of(resource_id)):
        return False
    restart = await asyncio.to_thread(_start, resource_id)
    if restart is None:
        return False
    start, removal = restart.start, restart.removal
    call = client().start_workflow(
        start.workflow,
        start.argument,
        id=start.id,
        task_queue=queues.MAIN,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=start.search_attributes,
        static_summary=f"{start.summary}, restarted by the reconciliation",
        start_signal=None if removal is None else "remove",
        start_signal_args=[] if removal is None else [removal],
    )
    await limited(call, f"{start.id}: start again")
    return True


async def _is_running(workflow_id: str) -> bool:
    handle = client().get_workflow_handle(workflow_id)
    try:
        found = await limited(handle.describe(), f"{handle.id}: describe")
    except RPCError as cause:
        if cause.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return bool(found.status is WorkflowExecutionStatus.RUNNING)


def _start(resource_id: str) -> Restart | None:
    """The restart from the present row; None when the lifecycle has ended since it was listed."""
    with database().read() as session:
        row = _still_open(session, resource_id)
        return None if row is None else restart_of(session, row)


def _still_open(session: Session, resource_id: str) -> tables.LifecycleRow | None:
    kind = KIND_BY_NOUN[noun_of(resource_id).name]
    query = select(kind.table).where(col(kind.table.id) == resource_id, _is_open(kind))
    row: tables.LifecycleRow | None = session.exec(query).first()
    return row
