"""Recording a step of a lifecycle: status, events and changes, in one transaction."""

from typing import Any

from sqlalchemy import CursorResult, update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import add_job_bytes, job_bytes
from activities.artifacts.uses import wake_waiting_jobs
from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.db.tables import (
    Allocation,
    DeviceConfiguration,
    EventRow,
    LifecycleRow,
    Reservation,
)
from activities.devices.outcomes import (
    NO_COLUMNS,
    close_targets,
    follow_run,
    values_of_device,
)
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.lifecycles.platform_events import append_violation
from activities.outbox.dispatcher import relay_soon
from activities.placement.allocation_states import is_live
from activities.placement.allocations import (
    confirm_allocations,
    free_allocations,
    lock_allocations,
    lock_jobs,
    release_allocations,
)
from activities.placement.wake import wake_placement
from workflows.contracts.artifacts import ArtifactStatus, Content
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import (
    ArtifactChanges,
    DeploymentChanges,
    DeviceChanges,
    JobChanges,
    LeaseChanges,
    NodeChanges,
    Record,
    Recorded,
    RegionChanges,
)
from workflows.contracts.nodes import Hardware
from workflows.contracts.statuses import AllocationState, JobStatus, NodeStatus, RegionStatus
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name


@activity.defn
def record(step: Record) -> Recorded:
    """Write a step once; a repeated or older step changes nothing.

    Raises: NotFound, when there is no row of the resource.
    """
    with database().write() as session:
        if not _is_confirmed(session, step):
            return Recorded(applied=False, confirmed=False)
        recorded, request_ids = _apply(session, step)
    relay_soon(request_ids)
    if _matters_to_placement(step):
        wake_placement()
    return recorded


def _is_confirmed(session: Session, step: Record) -> bool:
    """Whether the job takes the allocations over that this step confirms; most confirm none."""
    if not isinstance(step.changes, JobChanges) or not step.changes.confirms:
        return True
    lock_jobs(session, [step.resource_id])
    return confirm_allocations(session, step.changes.confirms, step.at)


def _apply(session: Session, step: Record) -> tuple[Recorded, list[str]]:
    """Write the step; return what the row has then, and the outbox rows to relay after."""
    table = KIND_BY_NOUN[step.changes.noun].table
    left = _left_on(session, step)
    bytes_before = _job_bytes(session, step)
    values = {
        "status": step.status,
        "status_reason": step.status_reason,
        "sequence": step.sequence,
        "updated_at": step.at,
        "recorded_run_id": step.run_id,
        "recorded_history_length": step.history_length,
        **_values(step),
    }
    written = session.execute(
        update(table)
        .where(col(table.id) == step.resource_id, col(table.sequence) < step.sequence)
        .values(values)
    )
    if not isinstance(written, CursorResult) or written.rowcount == 0:
        return _not_applied(session, table, step), []
    if bytes_before is not None:
        added = job_bytes(session, step.resource_id) - bytes_before
        add_job_bytes(session, step.account_id, added)
    request_ids: list[str] = []
    if isinstance(step.changes, JobChanges) and step.changes.release:
        request_ids = release_allocations(
            session,
            step.resource_id,
            step.at,
            leaving=step.changes.leaving,
            staying_nodes=step.changes.staying_nodes,
        )
    free_allocations(session, left, step.at)
    if isinstance(step.changes, ArtifactChanges) and step.status in _SETTLED:
        request_ids = wake_waiting_jobs(session, step.resource_id, step.at)
    if isinstance(step.changes, DeviceChanges):
        if step.events or step.changes.outcome is not None:  # Else only its output is new.
            follow_run(session, step, step.changes)
        request_ids = close_targets(session, step, step.changes)
    if isinstance(step.changes, RegionChanges) and step.status == RegionStatus.ARCHIVED:
        _remove_rows(session, step)
    _append_events(session, step)
    append_violation(session, step)
    return Recorded(applied=True, sequence=step.sequence), request_ids


def _job_bytes(session: Session, step: Record) -> int | None:
    """What a job counts for before a step that may change it; None: the step does not."""
    changes = step.changes
    if not isinstance(changes, JobChanges):
        return None
    stored = (changes.log_bytes, changes.state_bytes)
    if stored == (None, None) and step.status != JobStatus.ARCHIVED:
        return None
    return job_bytes(session, step.resource_id)


def _left_on(session: Session, step: Record) -> list[Allocation]:
    """The leaving allocations of a node that is archived with this step, which frees them.

    All allocations on the node are locked, so that a job that leaves one now sees the node archived
    afterwards; and before the node's row, as everywhere.
    """
    if not isinstance(step.changes, NodeChanges) or step.status != NodeStatus.ARCHIVED:
        return []
    on_node = col(Allocation.node_id) == step.resource_id
    held = lock_allocations(session, on_node, is_live())
    return [each for each in held if each.state == AllocationState.LEAVING]


def _remove_rows(session: Session, step: Record) -> None:
    """Remove the reservations and device configurations of a region that is gone; a region that
    stays keeps them."""
    for table in (Reservation, DeviceConfiguration):
        kept = col(table.region_id) == step.resource_id, col(table.removed_at).is_(None)
        session.execute(update(table).where(*kept).values(removed_at=step.at))


def _values(step: Record) -> dict[str, Any]:
    """The columns that a step sets besides its status."""
    changes = step.changes
    values = changes.model_dump(mode="json", exclude=_NO_COLUMNS, exclude_none=True)
    if isinstance(changes, JobChanges):
        values |= changes.model_dump(mode="json", include={"ending"})
        if changes.unsettled is not None:
            values["unsettled"] = values["unsettled"] or None
        values["retry_at"] = changes.retry_at  # No column takes an instant as JSON writes it.
        if _waits_again(step.status, changes):
            values["waiting_since"] = step.at
    elif not isinstance(changes, LeaseChanges | DeploymentChanges) and changes.removal is not None:
        values |= {
            "removal_requested_at": step.at,
            "removal_force": changes.removal.force,
            "removal_requested_by": changes.removal.requested_by,
            "removal_reschedules": changes.removal.reschedules,
        }
    if isinstance(changes, NodeChanges) and changes.hardware is not None:
        values |= _capacity(changes.hardware)
    if isinstance(changes, DeviceChanges):
        values |= values_of_device(step, changes)
    if isinstance(changes, DeploymentChanges) and changes.deadline is not None:
        values["deadline"] = changes.deadline  # No column takes an instant as JSON writes it.
    if isinstance(changes, ArtifactChanges) and changes.content is not None:
        values |= _content(changes.content)
    if isinstance(changes, LeaseChanges):
        # No column takes an instant as JSON writes it.
        values |= {"began_at": changes.began_at, "ended_at": changes.ended_at}
        known = {name: value for name, value in values.items() if value is not None}
        return {**_NO_MACHINE, **known} if changes.is_another else known
    return values


_SETTLED = (ArtifactStatus.READY, ArtifactStatus.FAILED, ArtifactStatus.ARCHIVED)
"""The statuses of an artifact for which no job has to wait any more."""
_ALLOCATIONS = {"confirms", "release", "leaving", "staying_nodes"}
"""What a step of a job changes in its allocations, and not in its row."""
_NO_COLUMNS = {"noun", "is_another", "removal", "content", *NO_COLUMNS, *_ALLOCATIONS}


def _waits_again(status: str, changes: JobChanges) -> bool:
    """Whether the job waits in a later attempt, which does not keep its place in the queue."""
    return status == JobStatus.WAITING_FOR_RESOURCES and (changes.attempt or 1) > 1


_NO_MACHINE = {
    "provider_machine_id": None,
    "host": None,
    "port": 22,
    "user": "root",
    "minion_id": None,
    "microcredits_per_hour": None,
    "began_at": None,
    "ended_at": None,
}


def _capacity(hardware: Hardware) -> dict[str, Any]:
    gpus = hardware.gpus
    return {
        "gpu_type": gpu_type_of_driver_name(gpus[0].name) if gpus else None,
        "gpu_count": len(gpus),
        "cpu_count": hardware.cpu_count,
        "memory_bytes": hardware.memory_bytes,
    }


def _content(content: Content) -> dict[str, Any]:
    size = content.size_bytes
    sizes = content.model_dump(include={"size_bytes", "unpacked_bytes", "file_count"})
    return {
        **sizes, "content_sha256": content.sha256, "bytes_transferred": size, "total_bytes": size
    }  # fmt: skip


def _append_events(session: Session, step: Record) -> None:
    """Add the events last in the transaction, so that positions follow the order of commits."""
    if not step.events:
        return
    advisory_lock(session, f"events/{step.account_id}")
    for index, event in enumerate(step.events):
        session.add(
            EventRow(
                id=new_id("evt"),
                account_id=step.account_id,
                resource_id=step.resource_id,
                sequence=step.sequence,
                index=index,
                type=event.type,
                message=event.message,
                details=event.details,
                at=step.at,
            )
        )
        session.flush()


def _not_applied(session: Session, table: type[LifecycleRow], step: Record) -> Recorded:
    """The answer to a step that the row has, or is ahead of.

    The row may have the step's number from another run, or from what a restored run has forgotten.
    A run whose worker was killed in a workflow task begins that task anew, and writes once more
    what it has written in it; its history is as long as before. That of a restored run is shorter.

    Raises: NotFound, when there is no such row.
    """
    query = select(table.sequence, table.recorded_run_id, table.recorded_history_length)
    found = session.exec(query.where(col(table.id) == step.resource_id)).first()
    if found is None:
        raise ApplicationError(
            f"{table.__tablename__}: asked to record a step of {step.resource_id}, "
            "found no such row",
            type=NOT_FOUND,
            non_retryable=True,
        )
    sequence, run_id, history_length = found
    is_own = bool(run_id) and run_id == step.run_id and history_length <= step.history_length
    is_stale = (sequence > step.sequence or bool(run_id)) and not is_own
    return Recorded(applied=False, sequence=sequence, is_stale=is_stale)


def _matters_to_placement(step: Record) -> bool:
    changes = step.changes
    if isinstance(changes, JobChanges):
        return changes.release or step.status == JobStatus.WAITING_FOR_RESOURCES
    return isinstance(changes, NodeChanges) and step.status == NodeStatus.ACTIVE
