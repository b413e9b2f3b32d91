"""The effect `record`, a step of a lifecycle, once. As activities/lifecycles/record.py."""

from typing import Any

from temporalio.exceptions import ApplicationError

from activities.lifecycles.record import (
    _NO_COLUMNS,
    _NO_MACHINE,
    _capacity,
    _content,
    _matters_to_placement,
)
from activities.lifecycles.record import _waits_again as waits_again
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Allocation, Job, LifecycleRow
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import (
    ArtifactChanges,
    DeploymentChanges,
    FederatedChanges,
    JobChanges,
    LeaseChanges,
    NodeChanges,
    Record,
    Recorded,
)
from workflows.contracts.statuses import JobStatus, NodeStatus

_INSTANTS = ("began_at", "ended_at")


class Steps:
    def __init__(
        self, tables: Tables, connection: Connection, outbox: Outbox, allocations: Allocations
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._allocations = allocations

    def effects(self) -> dict[str, Handler]:
        return {"record": self._record}

    def _record(self, attempt: Attempt, step: Record) -> Recorded:
        with self._tables.write():
            if not self._is_confirmed(step):
                return Recorded(applied=False, confirmed=False)
            recorded, request_ids = self._apply(step)
        if request_ids:
            self._connection.between()
            self._outbox.relay_soon(request_ids)
        if _matters_to_placement(step):
            self._connection.between()
            self._connection.wake_placement()
        return recorded

    def _is_confirmed(self, step: Record) -> bool:
        """Whether the job takes over the allocations that this step confirms."""
        if not isinstance(step.changes, JobChanges) or not step.changes.confirms:
            return True
        return self._allocations.confirm(step.changes.confirms, step.at)

    def _apply(self, step: Record) -> tuple[Recorded, list[str]]:
        row = self._tables.of_noun[step.changes.noun].get(step.resource_id)
        if row is None or row.sequence >= step.sequence:
            return _not_applied(row, step), []
        left = self._left_on(step)
        bytes_before = _stored_bytes(row)
        self._tables.change(
            row,
            status=step.status,
            status_reason=step.status_reason,
            sequence=step.sequence,
            updated_at=step.at,
            recorded_run_id=step.run_id,
            recorded_history_length=step.history_length,
            **_values(step),
        )
        self._count_bytes(row, bytes_before)
        request_ids: list[str] = []
        if isinstance(step.changes, JobChanges) and step.changes.release:
            request_ids = self._allocations.release(
                row.id,
                step.at,
                leaving=step.changes.leaving,
                staying_nodes=step.changes.staying_nodes,
            )
        self._allocations.free(left, step.at)
        for event in step.events:
            self._tables.append_event(row, event.type, event.message, step.at)
        return Recorded(applied=True, sequence=step.sequence), request_ids

    def _left_on(self, step: Record) -> list[Allocation]:
        """The leaving allocations of a node that is archived with this step."""
        if not isinstance(step.changes, NodeChanges) or step.status != NodeStatus.ARCHIVED:
            return []
        live = self._tables.live_on.get(step.resource_id, {}).values()
        return [each for each in live if each.is_leaving]

    def _count_bytes(self, row: LifecycleRow, before: int) -> None:
        added = _stored_bytes(row) - before
        if added:
            account = self._tables.accounts[row.account_id]
            self._tables.set(account, job_bytes=account.job_bytes + added)


def _stored_bytes(row: LifecycleRow) -> int:
    """As activities/accounts/stored_bytes.py:job_bytes."""
    if not isinstance(row, Job) or row.status == JobStatus.ARCHIVED:
        return 0
    return (row.log_bytes or 0) + (row.state_bytes or 0)


def _values(step: Record) -> dict[str, Any]:
    """The columns that a step sets besides its status: record.py:_values."""
    changes = step.changes
    values = {
        name: value
        for name, value in changes
        if value is not None and name not in _NO_COLUMNS and name not in _INSTANTS
    }
    if isinstance(changes, JobChanges):
        values |= {"ending": changes.ending, "retry_at": changes.retry_at}
        values["unsettled"] = changes.unsettled or None
        if waits_again(step.status, changes):
            values["waiting_since"] = step.at
    elif isinstance(changes, LeaseChanges):
        instants = {name: getattr(changes, name) for name in _INSTANTS}
        values |= {name: value for name, value in instants.items() if value is not None}
        return {**_NO_MACHINE, **values} if changes.is_another else values
    elif (
        not isinstance(changes, DeploymentChanges | FederatedChanges)
        and changes.removal is not None
    ):
        values |= {
            "removal_requested_at": step.at,
            "removal_force": changes.removal.force,
            "removal_requested_by": changes.removal.requested_by,
            "removal_reschedules": changes.removal.reschedules,
        }
    if isinstance(changes, NodeChanges) and changes.hardware is not None:
        values |= _capacity(changes.hardware)
    if isinstance(changes, ArtifactChanges) and changes.content is not None:
        values |= _content(changes.content)
    return values


def _not_applied(row: LifecycleRow | None, step: Record) -> Recorded:
    """As record.py:_not_applied. Raises: NotFound, when there is no such row."""
    if row is None:
        raise ApplicationError(
            f"asked to record a step of {step.resource_id}, found no such row",
            type=NOT_FOUND,
            non_retryable=True,
        )
    run_id, history_length = row.recorded_run_id, row.recorded_history_length
    is_own = bool(run_id) and run_id == step.run_id and history_length <= step.history_length
    is_stale = (row.sequence > step.sequence or bool(run_id)) and not is_own
    return Recorded(applied=False, sequence=row.sequence, is_stale=is_stale)
