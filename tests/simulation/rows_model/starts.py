"""Starts of lifecycles from their rows, and the progress with which a lost one goes on.

The starts are the real ones (`start_*` of activities/*/starts.py) with rows of the model. What
resumes is written anew where the real one asks the database, around the same pure functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlmodel import Session

from activities.artifacts.starts import resume_artifact, start_artifact
from activities.datastores.starts import resume_datastore, start_datastore
from activities.jobs.starts import _at, _snapshot_bytes, _unseen, end_job, start_job
from activities.leases.starts import _ending_of, start_lease
from activities.nodes.addresses import address_of
from activities.nodes.starts import _DECISIVE, _IN_USE, _loss, _release_of, _status, start_node
from activities.outbox.workflow_starts import WorkflowStart, removal_of
from activities.providers.starts import resume_provider, start_provider
from activities.regions.starts import resume_region, start_region
from tests.simulation.rows_model.records import Job, Lease, LifecycleRow, Node, Region
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.events import NodeEvent
from workflows.contracts.jobs import (
    JobProgress,
    JobRequest,
    MachineGone,
    WorkerProgress,
)
from workflows.contracts.leases import LeaseProgress, LeaseRequest
from workflows.contracts.lifecycles import LEASE
from workflows.contracts.machines import MachineObservation
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import JobStatus, LeaseStatus, MachineState, NodeStatus
from workflows.rules.nodes.onboarding import TRIES, first_status_of


@dataclass(frozen=True)
class Start:
    """The start of a workflow, as `Temporal.start` takes it."""

    workflow: str
    workflow_id: str
    request: Any
    search_attributes: Mapping[str, Any]


class _Answers:
    """What the real starts ask a session for: the region of a row, and its last lease."""

    def __init__(self, region: Region | None, lease: Lease | None = None) -> None:
        self._region, self._lease = region, lease

    def get(self, _table: object, _id: str) -> Region | None:
        return self._region

    get_one = get

    def exec(self, _query: object) -> "_Answers":
        return self

    def first(self) -> Lease | None:
        return self._lease


def start_of(tables: Tables, row: LifecycleRow) -> Start:
    """The start of a row's workflow: `LifecycleKind.start`."""
    found = _real_start(tables, cast("Any", row))
    return Start(
        workflow=found.workflow,
        workflow_id=found.id,
        request=found.argument,
        search_attributes={
            pair.key.name: pair.value for pair in found.attributes_with_name.search_attributes
        },
    )


def _real_start(tables: Tables, row: Any) -> WorkflowStart[Any]:
    answers = _Answers(None)
    if isinstance(row, Node | Lease):
        lease = tables.last_lease(row.id) if isinstance(row, Node) else None
        answers = _Answers(tables.regions[row.region_id], lease)
    found: WorkflowStart[Any] = _STARTS[row.noun.name](cast("Session", answers), row)
    return found


_STARTS: dict[str, Any] = {
    "provider": start_provider,
    "region": start_region,
    "node": start_node,
    "lease": start_lease,
    "job": start_job,
    "dataset": start_artifact,
    "datastore": start_datastore,
}


def restart_of(tables: Tables, row: LifecycleRow, *, ended_by_person: bool) -> Start:
    """The start that goes on after the row's last step: lifecycles/restarts.py:restart_of."""
    start = start_of(tables, row)
    if row.sequence == 0 or (row.status == "new" and not isinstance(row, Job)):
        return start
    request = _resumed(tables, cast("Any", row), start.request)
    if ended_by_person and isinstance(row, Job):
        request = end_job(request)
    return Start(start.workflow, start.workflow_id, request, start.search_attributes)


def _resumed(tables: Tables, row: Any, request: Any) -> Any:
    resume = _RESUMES.get(row.noun.name)
    if resume is not None:
        return resume(cast("Session", None), row, request)
    match row.noun.name:
        case "lease":
            return _resume_lease(row, request)
        case "node":
            return _resume_node(tables, row, request)
    return _resume_job(tables, row, request)


_RESUMES: Mapping[str, Callable[[Session, Any, Any], Any]] = {
    "provider": resume_provider,
    "region": resume_region,
    "dataset": resume_artifact,
    "datastore": resume_datastore,
}


# ── jobs ────────────────────────────────────────────────────────────────────────────────────


def _resume_job(tables: Tables, row: Job, request: JobRequest) -> JobRequest:
    """As activities/jobs/starts.py:resume_job."""
    if request.removal:
        return request
    status = JobStatus(row.status)
    waits = status is JobStatus.WAITING_FOR_RESOURCES
    is_over = waits and (bool(row.workers) or row.retry_at is not None)
    workers = () if waits else _at_present_addresses(tables, row)
    leased = any(one.assignment is not None and one.assignment.can_be_lost for one in workers)
    lost = _unreachable_nodes(tables, row.id)
    resumed_from = JobProgress(
        sequence=row.sequence,
        attempt=row.attempt + is_over,
        status=status,
        workers=tuple(_unseen(one, lost) for one in workers),
        lost=lost,
        restarts=row.restarts,
        retries=row.retries,
        retry_at=row.retry_at,
        ran_s=row.ran_s,
        has_copies=leased or request.type.is_service or row.attempt + is_over > 1,
        snapshot_bytes=_snapshot_bytes(cast("Any", row), request),
        log_bytes=row.log_bytes,
        output_bytes=row.output_bytes,
        unsettled=row.unsettled or (),
        reason=row.status_reason if waits else None,
        ending=row.ending,
        gone=_machines_gone(tables, workers),
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _at_present_addresses(tables: Tables, row: Job) -> tuple[WorkerProgress, ...]:
    ids = [one.assignment.node.node_id for one in row.workers if one.assignment is not None]
    nodes = [tables.nodes[each] for each in ids]
    there = {
        node.id: address_of(cast("Any", node), cast("Any", tables.regions[node.region_id]))
        for node in nodes
        if node.host is not None
    }
    return tuple(_at(one, there) for one in row.workers)


def _machines_gone(tables: Tables, workers: Sequence[WorkerProgress]) -> tuple[MachineGone, ...]:
    nodes = {
        one.assignment.lease_id: one.assignment.node.node_id
        for one in workers
        if one.assignment is not None and one.assignment.lease_id is not None
    }
    leases = [tables.leases[each] for each in sorted(nodes)]
    return tuple(
        MachineGone(
            node_id=nodes[lease.id], reason=lease.status_reason or "", ended_at=lease.ended_at
        )
        for lease in leases
        if lease.status in LEASE.final_statuses
    )


def _unreachable_nodes(tables: Tables, job_id: str) -> dict[str, datetime]:
    live = tables.live_of.get(job_id, {}).values()
    nodes = [tables.nodes[each.node_id] for each in live if each.is_of_job]
    return {
        node.id: node.updated_at
        for node in nodes
        if node.status in (NodeStatus.OFFLINE, NodeStatus.ARCHIVED)
    }


# ── leases ──────────────────────────────────────────────────────────────────────────────────


def _resume_lease(row: Lease, request: LeaseRequest) -> LeaseRequest:
    """As activities/leases/starts.py:resume_lease."""
    observation = None
    if row.host is not None or row.provider_machine_id is not None:
        observation = MachineObservation(
            state=MachineState.MAKING if row.host is None else MachineState.RUNNING,
            zone=row.offer.zone if row.offer else "",
            provider_machine_id=row.provider_machine_id,
            host=row.host,
            port=row.port,
            user=row.user,
            minion_id=row.minion_id,
            microcredits_per_hour=row.microcredits_per_hour,
            began_at=row.began_at,
        )
    status = LeaseStatus(row.status)
    ending = _ending_of(cast("Any", row))
    resumed_from = LeaseProgress(
        sequence=row.sequence,
        status=status,
        offer=row.offer,
        seen=observation,
        was_ready=ending.was_ready if ending else status is LeaseStatus.READY,
        released=ending.released if ending else None,
        lost=ending.lost if ending else None,
        earlier_microcredits=row.earlier_microcredits,
        reason=row.status_reason,
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


# ── nodes ───────────────────────────────────────────────────────────────────────────────────


def _resume_node(tables: Tables, row: Node, request: NodeRequest) -> NodeRequest:
    """As activities/nodes/starts.py:resume_node."""
    found = None if row.machine is None else tables.last_lease(row.id)
    lease = cast("Any", found)
    decisive = _last_decisive(tables, row)
    was_used = row.status in _IN_USE or decisive is not None
    resume_status = NodeStatus.MAINTENANCE
    if _was_active(row, decisive):
        resume_status = NodeStatus.ACTIVE
    if not was_used:
        resume_status = first_status_of(request.services, is_leased=row.machine is not None)
    removal = removal_of(cast("Any", row))
    resumed_from = NodeProgress(
        sequence=row.sequence,
        status=_status(cast("Any", row), lease, resume_status),
        resume_status=resume_status,
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
        minion_id=row.minion_id,
        lease_id=found.id if found else "",
        tries_left=TRIES if was_used else 0,
        lost=None if found is None else _loss(lease),
        releasing=None if found is None else _release_of(lease),
        reason=row.status_reason,
        removal=removal.removal if removal else None,
        ended_by=row.status_reason if removal else None,
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _was_active(row: Node, decisive: str | None) -> bool:
    """As activities/nodes/starts.py:_was_active."""
    by_itself = (NodeEvent.PREPARED, NodeEvent.PROTOCOL_VIOLATED)
    if row.status == NodeStatus.ACTIVE or decisive == NodeEvent.ACTIVE:
        return True
    return row.machine is not None and decisive in by_itself


def _last_decisive(tables: Tables, row: Node) -> str | None:
    events = reversed(tables.events.get(row.id, ()))
    return next((event.type for event in events if event.type in _DECISIVE), None)
