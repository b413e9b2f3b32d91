"""From a row whose workflow was ended from outside to a workflow that goes on from there.

A job's does not go on: it ends what is left, bills it, and gives its places back. One that is
stopped has nothing left, and rests on.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import TypeAdapter
from sqlmodel import Session, col, select

from activities.db import tables
from activities.outbox.workflow_starts import WorkflowStart, start_of
from workflows.contracts.base import Contract
from workflows.contracts.events import NodeEvent
from workflows.contracts.jobs import EndRequest, JobProgress, JobRequest, WorkerProgress
from workflows.contracts.leases import LeaseProgress, LeaseRelease, LeaseRequest
from workflows.contracts.lifecycles import Removal
from workflows.contracts.machines import MachineObservation, MachineOffer
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.regions import RegionRequest
from workflows.contracts.statuses import (
    JobStatus,
    LeaseStatus,
    MachineState,
    NodeStatus,
    ProviderStatus,
    RegionStatus,
)

TERMINATED = EndRequest(reason="its workflow was ended from outside", code="terminated")
_WORKERS = TypeAdapter(tuple[WorkerProgress, ...])
_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE, NodeStatus.REMOVING)
_BEGINNINGS = frozenset({"new", ProviderStatus.ENABLING, RegionStatus.PROVISIONING})


@dataclass(frozen=True)
class Restart:
    """A start, and the removal that goes along with it where one was under way."""

    start: WorkflowStart
    removal: Removal | None = None


def restart_of(session: Session, row: tables.LifecycleRow) -> Restart:
    """The start that takes up a row's life where its steps end."""
    start = start_of(session, row)
    removal = None
    if row.status == "removing" and not isinstance(row, tables.Job):
        removal = Removal(force=True, requested_by="the sweep: its removal was broken off")
    return Restart(replace(start, argument=_carried(session, row, start.argument)), removal)


def _carried(session: Session, row: tables.LifecycleRow, argument: Contract) -> Contract:
    """The request with what the row says; without it, where all is yet to begin."""
    if row.sequence == 0 or row.status in _BEGINNINGS:
        return argument
    if isinstance(row, tables.Job) and isinstance(argument, JobRequest):
        return argument if argument.removal else _job(session, row, argument)
    if isinstance(row, tables.Node) and isinstance(argument, NodeRequest):
        return _node(session, row, argument)
    if isinstance(row, tables.Lease) and isinstance(argument, LeaseRequest):
        return _machine(row, argument)
    return _place(row.status, argument)


def _place(status: str, argument: Contract) -> Contract:
    """A provider or region goes on as it was before its removal was asked for."""
    if isinstance(argument, ProviderRequest):
        kept = ProviderStatus(status)
        resumed = ProviderStatus.READY if kept is ProviderStatus.REMOVING else kept
        return argument.model_copy(update={"resumed_status": resumed})
    if isinstance(argument, RegionRequest):
        held = RegionStatus(status)
        back = RegionStatus.HEALTHY if held is RegionStatus.REMOVING else held
        return argument.model_copy(update={"resumed_status": back})
    return argument


def _job(session: Session, row: tables.Job, request: JobRequest) -> JobRequest:
    workers = _WORKERS.validate_python(row.workers)
    rests = row.status == JobStatus.STOPPED
    leased = any(one.assignment is not None and one.assignment.can_be_lost for one in workers)
    resumed_from = JobProgress(
        sequence=row.sequence,
        attempt=row.attempt,
        status=JobStatus(row.status),
        workers=workers,
        lost=_away(session, row.id),
        has_copies=leased or not rests,  # An earlier attempt may have left some, to be removed.
    )
    return request.model_copy(
        update={"resumed_from": resumed_from, "ending": None if rests else TERMINATED}
    )


def _away(session: Session, job_id: str) -> dict[str, datetime]:
    """The job's nodes that cannot be reached, and since when: it was told so, and has forgotten."""
    query = (
        select(tables.Node.id, tables.Node.updated_at)
        .join(tables.Allocation, col(tables.Allocation.node_id) == tables.Node.id)
        .where(
            col(tables.Allocation.job_id) == job_id,
            col(tables.Allocation.released_at).is_(None),
            col(tables.Node.status).in_((NodeStatus.OFFLINE, NodeStatus.ARCHIVED)),
        )
    )
    return dict(session.exec(query).all())


def _machine(row: tables.Lease, request: LeaseRequest) -> LeaseRequest:
    """What was being tried is found first; what was ready is looked at."""
    seen = None
    if row.host is not None or row.provider_machine_id is not None:
        seen = MachineObservation(
            state=MachineState.MAKING if row.host is None else MachineState.RUNNING,
            zone=(row.offer or {}).get("zone", ""),
            provider_machine_id=row.provider_machine_id,
            host=row.host,
            port=row.port,
            user=row.user,
            minion_id=row.minion_id,
            microcredits_per_hour=row.microcredits_per_hour,
            began_at=row.began_at,
        )
    status = LeaseStatus(row.status)
    leaves = status is LeaseStatus.RELEASING
    resumed_from = LeaseProgress(
        sequence=row.sequence,
        status=status,
        offer=None if row.offer is None else MachineOffer.model_validate(row.offer),
        seen=seen,
        was_ready=status is LeaseStatus.READY,
        released=LeaseRelease(reason=row.status_reason or "its release goes on")
        if leaves
        else None,
        earlier_microcredits=row.earlier_microcredits,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _node(session: Session, row: tables.Node, request: NodeRequest) -> NodeRequest:
    """A node that was in use goes on so; one that was not goes through its onboarding again, and so
    does one whose leased machine has come to its end meanwhile."""
    status = NodeStatus(row.status)
    lease_id = None if row.machine is None else _ready_lease(session, row)
    if status not in _IN_USE or row.host is None or (row.machine is not None and lease_id is None):
        return request
    resumed = NodeStatus.ACTIVE if _was_active(session, row) else NodeStatus.MAINTENANCE
    resumed_from = NodeProgress(
        sequence=row.sequence,
        status=resumed if status is NodeStatus.REMOVING else status,
        resume_status=resumed,
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
        minion_id=row.minion_id,
        lease_id=lease_id or "",
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _ready_lease(session: Session, row: tables.Node) -> str | None:
    """The lease of the machine that the node is on."""
    query = select(tables.Lease.id).where(
        col(tables.Lease.holder_id) == row.id,
        col(tables.Lease.status) == LeaseStatus.READY,
        col(tables.Lease.minion_id) == row.minion_id,
    )
    return session.exec(query).first()


def _was_active(session: Session, row: tables.Node) -> bool:
    """Whether a person had it active when it went offline or was to be removed: events say. What
    is leased becomes active by being prepared."""
    if row.status == NodeStatus.ACTIVE:
        return True
    turned = (NodeEvent.ACTIVE, NodeEvent.MAINTENANCE, NodeEvent.PREPARED)
    last = session.exec(
        select(tables.EventRow.type)
        .where(col(tables.EventRow.resource_id) == row.id, col(tables.EventRow.type).in_(turned))
        .order_by(col(tables.EventRow.position).desc())
    ).first()
    return last == NodeEvent.ACTIVE or (row.machine is not None and last == NodeEvent.PREPARED)
