"""The outbox: written with the change that asks for it, delivered in order for each resource.

As activities/outbox/requests.py, deliveries.py, relay.py and dispatcher.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from activities.outbox.deliveries import ROWS_AT_ONCE, START
from activities.outbox.relay import (
    NO_ANSWER_INTERVAL_MAX,
    PARK_AFTER,
    RETRY_INTERVAL_MAX,
    RETRY_INTERVAL_MIN,
)
from activities.outbox.requests import WAKE, WAKE_INTERVAL
from tests.simulation.contracts import AlreadyStarted, Attempt, Handler, NotFound, Unavailable
from tests.simulation.rows_model.connection import Connection, ProcessDied
from tests.simulation.rows_model.records import LifecycleRow, OutboxRow
from tests.simulation.rows_model.starts import Start, start_of
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import noun_of, workflow_id_of
from workflows.effects.reconciliation import OutboxRelayed, RelayOutbox

DISPATCH_DELAY_S = 0.005
"""From the commit of an activity to the relay of its rows by the dispatcher of its process."""


@dataclass(frozen=True)
class Delivery:
    """As activities/outbox/deliveries.py:Delivery."""

    request_id: str
    workflow_id: str
    verb: str
    argument: Contract | None
    start: Start | None
    is_final: bool
    again: bool


@dataclass
class Outcome:
    delivered: list[str] = field(default_factory=list)
    failed: dict[str, bool] = field(default_factory=dict)
    """Each with whether Temporal has refused it, or nobody can; False: no answer."""


class Outbox:
    def __init__(self, tables: Tables, connection: Connection) -> None:
        self._tables = tables
        self._connection = connection
        self._soon: list[str] = []

    def effects(self) -> dict[str, Handler]:
        return {"relay_outbox": self._relay_outbox}

    # ── writing, in the caller's transaction ────────────────────────────────────────────────

    def create(self, row: LifecycleRow) -> str:
        """Add a row, its event of sequence 0, and its workflow's start: requests.py:create."""
        self._tables.add(row)
        kind = row.noun.events(f"{row.noun.name}.requested").value
        message = f"{row.noun.name} {row.name} was requested"
        self._tables.append_event(row, kind, message, row.created_at)
        return self.enqueue(row.id, START, None, row.created_at)

    def enqueue(
        self,
        resource_id: str,
        verb: str,
        argument: Contract | None,
        at: datetime,
        *,
        is_removal: bool = False,
    ) -> str:
        row = OutboxRow(
            id=self._tables.new_id("req"),
            resource_id=resource_id,
            verb=verb,
            argument=argument,
            created_at=at,
            is_removal=is_removal,
        )
        self._tables.put(self._tables.outbox, row.id, row)
        self._wait(row)
        if verb == WAKE:
            self._tables.put(self._tables.wakes, resource_id, row)
        return row.id

    def wake(self, resource_id: str, at: datetime, *, slowly: bool = False) -> str:
        """One wake of a resource waits at a time, a later one in its place: requests.py:wake."""
        row = self._tables.wakes.get(resource_id)
        if row is None:
            return self.enqueue(resource_id, WAKE, None, at)
        free_at = row.delivered_at + WAKE_INTERVAL if row.delivered_at else row.next_attempt_at
        self._leave(row)
        self._tables.drop(self._tables.outbox, row.id)
        self._tables.set(
            row,
            id=self._tables.new_id("req"),
            created_at=at,
            next_attempt_at=free_at if slowly else None,
            attempts=0,
            delivered_at=None,
            refused_since=None,
            parked_at=None,
        )
        self._tables.put(self._tables.outbox, row.id, row)
        self._wait(row)
        return row.id

    def deliver_again(self, rows: Sequence[OutboxRow]) -> list[str]:
        """As activities/lifecycles/restarts.py:_deliver_again; returns their ids."""
        for row in rows:
            self._leave(row)
            self._tables.set(row, delivered_at=None, attempts=0, next_attempt_at=None)
            self._wait(row)
        return [row.id for row in rows]

    def waits(self, resource_id: str, verb: str) -> str | None:
        """The id of a waiting row with this verb."""
        rows = self._tables.waiting_requests.get(resource_id, {}).values()
        return next((row.id for row in rows if row.verb == verb), None)

    def _wait(self, row: OutboxRow) -> None:
        waiting = self._tables.waiting_requests
        self._tables.put(waiting.setdefault(row.resource_id, {}), row.id, row)

    def _leave(self, row: OutboxRow) -> None:
        """Neither waiting nor delivered for now."""
        tables = self._tables
        rows = tables.waiting_requests.get(row.resource_id, {})
        tables.drop(rows, row.id)
        tables.drop(tables.delivered.get(row.resource_id, {}), row.id)

    # ── delivering ──────────────────────────────────────────────────────────────────────────

    def relay_soon(self, request_ids: Iterable[str]) -> None:
        """Relay these rows a moment later, from this process: dispatcher.py:relay_soon."""
        asked = list(request_ids)
        if not asked:
            return
        if not self._soon:
            self._connection.temporal.later(DISPATCH_DELAY_S, self._relay_those_of_soon)
        self._soon += asked

    def _relay_those_of_soon(self) -> None:
        taken, self._soon = self._soon, []
        try:
            self.relay(taken)
        except ProcessDied:
            self._connection.temporal.note("rows", "the process died while it relayed requests")

    def relay(self, request_ids: Iterable[str]) -> int:
        """Deliver what waits of the resources of these rows: relay.py:relay."""
        rows = (self._tables.outbox.get(each) for each in request_ids)
        waiting = {row.resource_id for row in rows if row is not None and _waits(row)}
        return self._deliver_all(sorted(waiting))

    def _relay_outbox(self, attempt: Attempt, command: RelayOutbox) -> OutboxRelayed:
        resource_ids = self._due(command)
        delivered = self._deliver_all(resource_ids) if resource_ids else 0
        more = len(resource_ids) >= command.limit or delivered >= ROWS_AT_ONCE
        return OutboxRelayed(delivered=delivered, more=more and delivered > 0)

    def _due(self, command: RelayOutbox) -> list[str]:
        """The resources with a due row, the longest due first: relay.py:_due."""
        now = self._connection.now()
        before = now - timedelta(seconds=command.older_than_s)
        found: dict[str, datetime] = {}
        waiting = self._tables.waiting_requests
        for resource_id in [each for each, rows in waiting.items() if not rows]:
            del waiting[resource_id]
        for resource_id, rows in waiting.items():
            due = [
                row.next_attempt_at or row.created_at
                for row in rows.values()
                if row.created_at <= before
                and (row.next_attempt_at is None or row.next_attempt_at <= now)
            ]
            if due:
                found[resource_id] = min(due)
        return sorted(found, key=lambda each: (found[each], each))[: command.limit]

    def _deliver_all(self, resource_ids: Sequence[str]) -> int:
        outcome = Outcome()
        for deliveries in [self._prepared(each) for each in resource_ids]:
            self._deliver_in_order(deliveries, outcome)
        if outcome.delivered or outcome.failed:
            self._connection.between()
            with self._tables.write():
                self._note(outcome)
        return len(outcome.delivered)

    def _prepared(self, resource_id: str) -> list[Delivery | str]:
        """The next deliveries of a resource: deliveries.py:_prepared."""
        now = self._connection.now()
        rows = self._tables.waiting_requests.get(resource_id, {}).values()
        oldest = sorted(rows, key=lambda row: (row.created_at, row.id))[:ROWS_AT_ONCE]
        return [
            self._delivery(row)
            for row in oldest
            if row.verb != WAKE or row.next_attempt_at is None or row.next_attempt_at <= now
        ]

    def _delivery(self, request: OutboxRow) -> Delivery | str:
        """As deliveries.py:_delivery; the id alone of a row that cannot be read."""
        try:
            noun = noun_of(request.resource_id)
            row = self._tables.row(request.resource_id)
            removal = request.verb == START and request.is_removal
            is_final = row is None or row.status in noun.final_statuses
            again = removal and is_final
            start = None
            if row is not None and row.status != "archived" and (again or row.sequence == 0):
                start = start_of(self._tables, row)
                if removal:
                    ended = start.request.model_copy(update={"removal": True})
                    start = replace(start, request=ended)
        except (ValueError, LookupError, TypeError) as cause:
            self._connection.temporal.note("rows", f"{request.id} cannot be read: {cause}")
            return request.id
        return Delivery(
            request_id=request.id,
            workflow_id=workflow_id_of(request.resource_id),
            verb="remove" if removal and not again else request.verb,
            argument=None if removal else request.argument,
            start=start,
            is_final=is_final,
            again=again,
        )

    def _deliver_in_order(self, deliveries: Sequence[Delivery | str], outcome: Outcome) -> None:
        """Up to the first failure; a failed wake holds back none: relay.py:_deliver_in_order."""
        for delivery in deliveries:
            if isinstance(delivery, str):
                outcome.failed[delivery] = True
                return
            refused = True
            try:
                taken = self._deliver(delivery)
            except Unavailable:
                taken, refused = False, False
            if taken:
                outcome.delivered.append(delivery.request_id)
                continue
            outcome.failed[delivery.request_id] = refused
            if delivery.verb != WAKE:
                return

    def _deliver(self, delivery: Delivery) -> bool:
        """False when it must be tried again later: relay.py:_deliver."""
        if delivery.start is not None and not self._start(delivery.start, again=delivery.again):
            return False
        if delivery.verb == START:
            return True
        try:
            self._connection.temporal.signal(
                delivery.workflow_id,
                delivery.verb,
                delivery.argument,
                request_id=delivery.request_id,
            )
        except NotFound:
            return delivery.is_final
        return True

    def _start(self, start: Start, *, again: bool) -> bool:
        """False when an earlier workflow has not closed yet: relay.py:_start."""
        try:
            self._connection.temporal.start(
                start.workflow,
                start.workflow_id,
                start.request,
                search_attributes=start.search_attributes,
                reuse="allow_duplicate" if again else "reject_duplicate",
                conflict="fail" if again else "use_existing",
            )
        except AlreadyStarted:
            return not again
        return True

    def _note(self, outcome: Outcome) -> None:
        """Mark the delivered rows, and put off or park the failed ones: relay.py:_note."""
        now, tables = self._connection.now(), self._tables
        for request_id in outcome.delivered:
            row = tables.outbox.get(request_id)
            if row is None:
                continue  # A later wake has taken its place.
            self._leave(row)
            tables.set(row, delivered_at=now)
            if row.verb != START:
                tables.put(tables.delivered.setdefault(row.resource_id, {}), row.id, row)
        for request_id, refused in sorted(outcome.failed.items()):
            row = tables.outbox.get(request_id)
            if row is not None and _waits(row):
                self._put_off(row, now, refused=refused)

    def _put_off(self, row: OutboxRow, now: datetime, *, refused: bool) -> None:
        """Try the row again after a pause; park it after a day of refusals: relay.py:_put_off."""
        attempts = row.attempts + 1
        pause = RETRY_INTERVAL_MIN * 2 ** min(attempts - 1, 10)
        longest = RETRY_INTERVAL_MAX if refused else NO_ANSWER_INTERVAL_MAX
        since = (row.refused_since or now) if refused else None
        is_parked = since is not None and since <= now - PARK_AFTER
        next_at = now + min(pause, longest)
        tables = self._tables
        tables.set(row, attempts=attempts, next_attempt_at=next_at, refused_since=since)
        if is_parked:
            tables.set(row, parked_at=now)
            self._leave(row)
            self._record_parked(row, now)
        if row.verb == WAKE:
            return
        for later in list(tables.waiting_requests.get(row.resource_id, {}).values()):
            if later is not row and later.verb != WAKE:
                tables.set(later, next_attempt_at=now if is_parked else next_at)

    def _record_parked(self, request: OutboxRow, now: datetime) -> None:
        row = self._tables.row(request.resource_id)
        if row is not None:
            message = f"{request.verb} could not be delivered; request it again"
            self._tables.append_event(row, f"{row.noun.name}.request-parked", message, now)


def _waits(row: OutboxRow) -> bool:
    return row.delivered_at is None and row.parked_at is None
