"""Lifecycle reconciliation: rows compared with workflows, and lost workflows restarted."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import delete
from sqlmodel import col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.billing.job_billing import begin_billing, billing_id, is_billing_id
from activities.billing.unbilled_jobs import lost_bills
from activities.billing.unsettled_jobs import post_unsettled
from activities.db import tables
from activities.db.session import database
from activities.db.tables import OutboxRow
from activities.lifecycles.kinds import KINDS, is_open
from activities.lifecycles.lost_workflows import (
    Known,
    describe,
    known_of,
    running_workflows,
    slots,
)
from activities.lifecycles.platform_events import is_mass_loss, record_mass_loss
from activities.lifecycles.restarts import Lost, restart_all
from activities.nodes.ephemeral import LEAVING, dismiss_ephemeral
from activities.nodes.join_tokens import forget_join_tokens
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import is_waiting
from activities.outbox.workflow_starts import LifecycleKind
from activities.temporal.client import client, limited
from activities.temporal.singletons import ensure_singletons
from activities.temporal.stuck_workflows import terminate_if_stuck
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.statuses import NodeType
from workflows.effects.reconciliation import (
    LostWorkflowsRestarted,
    RestartLostWorkflows,
)

ANNOUNCED_FOR = timedelta(days=7)
QUIET_FOR = timedelta(minutes=2)
LOST_FOR = timedelta(seconds=30)
"""How long a row has not changed before its workflow is compared with it."""
SUSPICION_S = 900.0
"""How long after the last lost or stale workflow all others are described as well."""

Item = TypeVar("Item")


class Suspicion:
    """Whether Temporal's files may have been restored a short while ago.

    Only then is each workflow described, because one that is stuck shows in no listing.
    """

    def __init__(self) -> None:
        self._ends_at = 0.0

    @property
    def lasts(self) -> bool:
        return time.monotonic() < self._ends_at

    def begin(self) -> None:
        self._ends_at = time.monotonic() + SUSPICION_S


_suspicion = Suspicion()


@activity.defn
async def restart_lost_workflows(command: RestartLostWorkflows) -> LostWorkflowsRestarted:
    """Restart every open lifecycle whose workflow is lost or stale, and lost job billings.

    Running workflows are listed once; only a row whose workflow is not in the list, or shows
    another status than the row, is checked by itself. Once one is lost, Temporal's files may have
    been restored, and for some time every workflow is described, because some may be stuck.

    A lost workflow is adopted: it goes on from its row. A job whose workflow a person has
    terminated or cancelled is ended (`LifecycleKind.end`), unless many workflows are lost at once:
    then Temporal's state was lost or restored, and nobody has asked for their end.

    The singletons are ensured first. Announcements and join tokens that were not used for a
    week are deleted. Ephemeral nodes without a job are asked for their removal again.
    """
    await ensure_singletons(client())
    await asyncio.to_thread(_forget_announcements)
    relay_soon(await asyncio.to_thread(_dismiss_idle))
    running = await running_workflows(client())
    lost, row_count = await _lost(running, command.page_size)
    if lost:
        _suspicion.begin()
    if _suspicion.lasts:
        lost += await _stuck(running, {one.resource_id for one in lost}, command.page_size)
    missing = sum(not one.known.runs for one in lost)
    activity.metric_meter().create_gauge("baseload_lost_workflows").set(missing)
    adopts_all = is_mass_loss(missing, row_count)
    if adopts_all:
        await asyncio.to_thread(record_mass_loss, missing, row_count)
    restarted: list[str] = []
    for some in _pages(lost, command.page_size):
        restarted += await restart_all(some, adopts_all=adopts_all)
        activity.heartbeat(some[-1].resource_id)
    if _suspicion.lasts:
        for workflow_id in await _end_stuck_billings(running):
            del running[workflow_id]
    restarted += await _restart_billings(running)
    await asyncio.to_thread(post_unsettled, QUIET_FOR)
    await _end_stale(running, command.page_size)
    return LostWorkflowsRestarted(restarted=tuple(restarted))


async def _lost(running: Mapping[str, Known], page_size: int) -> tuple[list[Lost], int]:
    """The open rows whose workflow is lost or stale, and the number of open rows."""
    lost: list[Lost] = []
    count = 0
    for kind in KINDS:
        after = ""
        while page := await asyncio.to_thread(_open_rows, kind, after, page_size):
            after = max(page)
            count += len(page)
            suspects = {
                found: status
                for found, status in page.items()
                if _is_suspect(running.get(workflow_id_of(found)), status)
            }
            known = await asyncio.gather(*(known_of(found) for found in suspects))
            lost += [
                Lost(found, seen)
                for (found, status), seen in zip(suspects.items(), known, strict=True)
                if seen is not None and _is_suspect(seen, status)
            ]
            activity.heartbeat(after)
    return lost, count


async def _stuck(running: Mapping[str, Known], lost: Collection[str], page_size: int) -> list[Lost]:
    """The open rows whose workflow is stuck; each running workflow is described for that."""
    stuck: list[Lost] = []
    for kind in KINDS:
        after = ""
        while page := await asyncio.to_thread(_open_rows, kind, after, page_size):
            after = max(page)
            ids = [each for each in page if workflow_id_of(each) in running and each not in lost]
            known = await asyncio.gather(*(known_of(each) for each in ids))
            found = zip(ids, known, strict=True)
            stuck += [Lost(each, seen) for each, seen in found if seen and seen.is_stuck]
            activity.heartbeat(after)
    return stuck


def _is_suspect(known: Known | None, status: str) -> bool:
    return known is None or not known.runs or known.is_stale(status)


def _forget_announcements() -> None:
    """Delete old announcements, since no machine withdraws its own."""
    now = datetime.now(UTC)
    before = now - ANNOUNCED_FOR
    with database().write() as session:
        forget_join_tokens(session, now)
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


def _open_rows(kind: LifecycleKind[Any, Any], after: str, limit: int) -> dict[str, str]:
    """Ids and statuses of open rows whose start was delivered and that are quiet."""
    table = kind.table
    undelivered = (
        select(OutboxRow.id)
        .where(col(OutboxRow.resource_id) == col(table.id), is_waiting())
        .exists()
    )
    query = (
        select(table.id, table.status)
        .where(
            col(table.id) > after,
            (col(table.sequence) > 0) | ~undelivered,
            col(table.updated_at) < datetime.now(UTC) - LOST_FOR,
            is_open(kind),
        )
        .order_by(col(table.id))
        .limit(limit)
    )
    with database().read() as session:
        return dict(session.exec(query).all())


async def _end_stuck_billings(running: Collection[str]) -> list[str]:
    """Terminate the job billings that are stuck; return the ids of their workflows."""

    async def one(workflow_id: str) -> bool:
        async with slots():
            try:
                call = terminate_if_stuck(client(), workflow_id)
                was_stuck: bool = await limited(call, f"{workflow_id}: describe")
            except (RPCError, ApplicationError) as cause:
                # The next reconciliation, minutes later, tries this one again.
                activity.logger.warning("%s was not described: %s", workflow_id, cause)
                return False
            return was_stuck

    ids = [workflow_id for workflow_id in running if is_billing_id(workflow_id)]
    done = await asyncio.gather(*(one(each) for each in ids))
    activity.heartbeat(len(ids))
    return [each for each, was in zip(ids, done, strict=True) if was]


async def _restart_billings(running: Collection[str]) -> list[str]:
    """Restart lost job billings; return the ids of their workflows."""
    restarted: list[str] = []
    for bill in await asyncio.to_thread(lost_bills, running, QUIET_FOR):
        activity.heartbeat(bill.job_id)
        workflow_id = billing_id(bill.job_id)
        try:
            if not (await describe(workflow_id)).runs:
                await begin_billing(bill)
                restarted.append(workflow_id)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("%s was not restarted: %s", workflow_id, cause)
    return restarted


async def _end_stale(running: Mapping[str, Known], page_size: int) -> None:
    """Terminate the stale workflows of rows that have ended."""
    for kind in KINDS:
        ids = sorted(
            resource_id
            for workflow_id in running
            if (resource_id := workflow_id.removeprefix(f"{kind.noun.name}/")) != workflow_id
            and "/" not in resource_id
        )
        for some in _pages(ids, page_size):
            for resource_id, status in (await asyncio.to_thread(_ended_rows, kind, some)).items():
                if not running[workflow_id_of(resource_id)].is_stale(status):
                    continue
                known = await known_of(resource_id)
                if known is not None and known.is_stale(status):
                    await _terminate(resource_id, status)
                activity.heartbeat(resource_id)


def _ended_rows(kind: LifecycleKind[Any, Any], ids: Sequence[str]) -> dict[str, str]:
    """Ids and statuses of those rows that have ended and are quiet."""
    table = kind.table
    query = select(table.id, table.status).where(
        col(table.id).in_(ids),
        col(table.updated_at) < datetime.now(UTC) - LOST_FOR,
        ~is_open(kind),
    )
    with database().read() as session:
        return dict(session.exec(query).all())


async def _terminate(resource_id: str, status: str) -> None:
    workflow_id = workflow_id_of(resource_id)
    ended = client().get_workflow_handle(workflow_id).terminate(f"stale: its row is {status}")
    try:
        await limited(ended, f"{workflow_id}: terminate")
    except (RPCError, ApplicationError) as cause:
        activity.logger.warning("%s is stale, was not terminated: %s", workflow_id, cause)


def _pages(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
