"""The effect `restart_lost_workflows`: rows compared with workflows, and lost ones adopted.

As activities/lifecycles/reconciliation.py, lost_workflows.py, restarts.py and
activities/temporal/singletons.py. Schedules are the engine's own.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio.exceptions import ApplicationError

from activities.billing.job_billing import billing_id, is_billing_id
from activities.billing.unbilled_jobs import _METERED
from activities.lifecycles.lost_workflows import HISTORY_SERVICE, Known
from activities.lifecycles.platform_events import is_mass_loss
from activities.lifecycles.reconciliation import (
    ANNOUNCED_FOR,
    LOST_FOR,
    QUIET_FOR,
    SUSPICION_S,
    _is_suspect,
)
from activities.lifecycles.restarts import Lost
from activities.temporal.singletons import LOOPS
from activities.temporal.stuck_workflows import STUCK_ATTEMPTS
from tests.simulation.contracts import (
    AlreadyStarted,
    Attempt,
    Execution,
    Handler,
    NotFound,
    Unavailable,
)
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.billing import Billing, terminate_if_stuck
from tests.simulation.rows_model.connection import Connection, unanswered
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import LifecycleRow, OutboxRow
from tests.simulation.rows_model.starts import Start, restart_of, start_of
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.billing import BillingRequest
from workflows.contracts.lifecycles import LIFECYCLE_NOUNS, workflow_id_of
from workflows.contracts.statuses import NodeStatus
from workflows.effects.reconciliation import LostWorkflowsRestarted, RestartLostWorkflows
from workflows.rules.billing.billing_request import billing_of


class Adoption:
    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        outbox: Outbox,
        allocations: Allocations,
        billing: Billing,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._allocations = allocations
        self._billing = billing
        self._suspicion: dict[str, datetime] = {}
        """Until when a process describes every workflow, because some may be stuck."""

    def effects(self) -> dict[str, Handler]:
        return {"restart_lost_workflows": self._restart_lost_workflows}

    def _restart_lost_workflows(
        self, attempt: Attempt, command: RestartLostWorkflows
    ) -> LostWorkflowsRestarted:
        """As reconciliation.py:restart_lost_workflows."""
        self._ensure_loops()
        now = self._connection.now()
        self._forget_announcements(now)
        self._dismiss_idle(now)
        running = self._running()
        lost, row_count = self._lost(running, now)
        if lost:
            self._suspicion[attempt.process] = now + timedelta(seconds=SUSPICION_S)
        is_suspicious = now < self._suspicion.get(attempt.process, now)
        if is_suspicious:
            lost += self._stuck(running, {one.resource_id for one in lost}, now)
        missing = sum(not one.known.runs for one in lost)
        adopts_all = is_mass_loss(missing, row_count)
        restarted = [one.resource_id for one in lost if self._restart(one, adopts_all=adopts_all)]
        if is_suspicious:
            self._end_stuck_billings(running)
        restarted += self._restart_billings(running, now)
        self._billing.post_unsettled(QUIET_FOR)
        self._end_stale(running, now)
        return LostWorkflowsRestarted(restarted=tuple(restarted))

    # ── before ──────────────────────────────────────────────────────────────────────────────

    def _ensure_loops(self) -> None:
        """As singletons.py, of loops that are not daily: stuck ones end, missing ones start."""
        for workflow, argument, name in LOOPS:
            terminate_if_stuck(self._connection, name)
            try:
                self._connection.temporal.start(workflow, name, argument, conflict="use_existing")
            except Unavailable as cause:
                raise unanswered(f"{name}: start", cause) from cause

    def _forget_announcements(self, now: datetime) -> None:
        """As nodes/join_tokens.py:forget_join_tokens, of machines that are no node."""
        tables, before = self._tables, now - ANNOUNCED_FOR
        old = [
            found.minion_id
            for found in tables.announced.values()
            if found.at < before
            and all(
                node.status == NodeStatus.ARCHIVED
                for node in tables.nodes_by_minion.get(found.minion_id, {}).values()
            )
        ]
        with tables.write():
            for minion_id in old:
                tables.drop(tables.announced, minion_id)

    def _dismiss_idle(self, now: datetime) -> None:
        """Ask unused ephemeral nodes again: reconciliation.py:_dismiss_idle."""
        tables = self._tables
        quiet = [
            node.id
            for node in tables.open["node"].values()
            if self._allocations.is_unused(node)
            and node.updated_at < now - QUIET_FOR
            and not tables.waiting_requests.get(node.id)
        ]
        with tables.write():
            requests = self._allocations.dismiss_ephemeral(quiet, now)
        if requests:
            self._connection.between()
            self._outbox.relay_soon(requests)

    # ── what is lost ────────────────────────────────────────────────────────────────────────

    def _running(self) -> dict[str, Known]:
        try:
            found = self._connection.temporal.running()
        except Unavailable as cause:
            raise unanswered("the running workflows", cause) from cause
        return {each.workflow_id: Known(runs=True, status=_status_of(each)) for each in found}

    def _open_rows(self, noun: str, now: datetime) -> list[LifecycleRow]:
        """Open rows whose start was delivered and that are quiet: reconciliation.py:_open_rows."""
        waiting, before = self._tables.waiting_requests, now - LOST_FOR
        rows: list[LifecycleRow] = [
            row
            for row in self._tables.open[noun].values()
            if row.updated_at < before and (row.sequence > 0 or not waiting.get(row.id))
        ]
        return sorted(rows, key=lambda row: row.id)

    def _lost(self, running: Mapping[str, Known], now: datetime) -> tuple[list[Lost], int]:
        lost: list[Lost] = []
        count = 0
        for noun in LIFECYCLE_NOUNS:
            rows = self._open_rows(noun.name, now)
            count += len(rows)
            for row in rows:
                if _is_suspect(running.get(f"{noun.name}/{row.id}"), row.status):
                    known = self._known_of(row.id)
                    if known is not None and _is_suspect(known, row.status):
                        lost.append(Lost(row.id, known))
        return lost, count

    def _stuck(self, running: Mapping[str, Known], lost: set[str], now: datetime) -> list[Lost]:
        stuck: list[Lost] = []
        for noun in LIFECYCLE_NOUNS:
            for row in self._open_rows(noun.name, now):
                if f"{noun.name}/{row.id}" in running and row.id not in lost:
                    known = self._known_of(row.id)
                    if known is not None and known.is_stuck:
                        stuck.append(Lost(row.id, known))
        return stuck

    def _known_of(self, resource_id: str) -> Known | None:
        """None: Temporal has not answered; the next reconciliation tries again."""
        try:
            return self._describe(workflow_id_of(resource_id))
        except Unavailable:
            return None

    def _describe(self, workflow_id: str) -> Known:
        """As lost_workflows.py:describe. Raises: Unavailable."""
        try:
            found = self._connection.temporal.describe(workflow_id)
        except NotFound:
            return Known(runs=False)
        if found.status == "running":
            is_stuck = found.task_attempt >= STUCK_ATTEMPTS
            return Known(runs=True, status=_status_of(found), is_stuck=is_stuck)
        if found.status == "canceled":
            return Known(runs=False, ended_by_person=True)
        by_person = found.status == "terminated" and found.terminated_by != HISTORY_SERVICE
        return Known(runs=False, ended_by_person=by_person)

    # ── restarts ────────────────────────────────────────────────────────────────────────────

    def _restart(self, lost: Lost, *, adopts_all: bool) -> bool:
        """As restarts.py:_restart; False when it has ended, or Temporal does not answer."""
        row = self._tables.row(lost.resource_id)
        if row.status in row.noun.final_statuses:
            return False
        if lost.known.runs and not lost.known.is_stale(row.status):
            return False
        by_person = lost.known.ended_by_person and not adopts_all
        start = restart_of(self._tables, row, ended_by_person=by_person)
        unheard = self._unheard(row)
        requests: list[str] = []
        if not lost.known.runs:
            requests = self._deliver_again(unheard)
        try:
            self._replace(start, runs=lost.known.runs)
        except (Unavailable, AlreadyStarted) as cause:
            self._connection.temporal.note("rows", f"{row.id} was not restarted: {cause!r}")
            return False
        if lost.known.runs:
            requests = self._deliver_again(unheard)
        self._outbox.relay_soon(requests)
        return True

    def _replace(self, start: Start, *, runs: bool) -> None:
        """Start it; a stale one is terminated by the server itself with that start.

        Raises: Unavailable.
        """
        temporal = self._connection.temporal
        if runs:
            with suppress(NotFound):
                temporal.terminate(start.workflow_id, identity=HISTORY_SERVICE)
        temporal.start(
            start.workflow,
            start.workflow_id,
            start.request,
            search_attributes=start.search_attributes,
            conflict="use_existing",
        )

    def _unheard(self, row: LifecycleRow) -> list[OutboxRow]:
        """The signals that the lost workflow has not acted upon: restarts.py:_unheard."""
        delivered = self._tables.delivered.get(row.id, {}).values()
        found = [
            each
            for each in delivered
            if each.delivered_at is not None and each.delivered_at >= row.updated_at
        ]
        return sorted(found, key=lambda each: each.created_at)

    def _deliver_again(self, unheard: Sequence[OutboxRow]) -> list[str]:
        if not unheard:
            return []
        with self._tables.write():
            requests = self._outbox.deliver_again(unheard)
        self._connection.between()
        return requests

    # ── job billings, and what is stale ─────────────────────────────────────────────────────

    def _end_stuck_billings(self, running: dict[str, Known]) -> None:
        for workflow_id in [each for each in running if is_billing_id(each)]:
            try:
                if terminate_if_stuck(self._connection, workflow_id):
                    del running[workflow_id]
            except ApplicationError as cause:
                self._connection.temporal.note("rows", f"{workflow_id}: {cause}")

    def _restart_billings(self, running: Mapping[str, Known], now: datetime) -> list[str]:
        restarted: list[str] = []
        for bill in self._lost_bills(running, now):
            workflow_id = billing_id(bill.job_id)
            try:
                if not self._describe(workflow_id).runs:
                    self._billing.begin(bill)
                    restarted.append(workflow_id)
            except (Unavailable, ApplicationError) as cause:
                self._connection.temporal.note("rows", f"{workflow_id}: {cause}")
        return restarted

    def _lost_bills(self, running: Mapping[str, Known], now: datetime) -> list[BillingRequest]:
        """As unbilled_jobs.py:lost_bills."""
        found: list[BillingRequest] = []
        for job in self._tables.open["job"].values():
            if job.status not in _METERED or job.updated_at >= now - QUIET_FOR:
                continue
            if workflow_id_of(job.id) in running and billing_id(job.id) not in running:
                request = start_of(self._tables, job).request
                bill = billing_of(request, job.attempt, job.workers)
                if bill is not None:
                    found.append(bill)
        return found

    def _end_stale(self, running: Mapping[str, Known], now: datetime) -> None:
        """Terminate the stale workflows of rows that have ended: reconciliation.py:_end_stale."""
        tables = self._tables
        for workflow_id in sorted(running):
            noun, _, resource_id = workflow_id.partition("/")
            row = tables.of_noun.get(noun, {}).get(resource_id)
            if row is None or row.status not in row.noun.final_statuses:
                continue
            if row.updated_at >= now - LOST_FOR or not running[workflow_id].is_stale(row.status):
                continue
            known = self._known_of(resource_id)
            if known is not None and known.is_stale(row.status):
                try:
                    self._connection.temporal.terminate(workflow_id)
                except (Unavailable, NotFound) as cause:
                    self._connection.temporal.note("rows", f"{workflow_id}: {cause!r}")


def _status_of(found: Execution) -> str | None:
    """The status of its resource, as the workflow run shows it."""
    status = found.search_attributes.get("ResourceStatus")
    return None if status is None else str(status)
