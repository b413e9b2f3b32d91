"""Starts of job lifecycles from their rows, and their progress after a restart."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import TypeAdapter
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, Job, Lease, Node, Region
from activities.jobs.submissions import submission_of
from activities.nodes.addresses import address_of
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from activities.placement.allocation_states import is_of_job
from activities.settings import settings
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.deliveries import DeliveryStatus
from workflows.contracts.jobs import (
    EndRequest,
    JobEnding,
    JobProgress,
    JobRequest,
    MachineGone,
    WorkerProgress,
)
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import (
    JobStatus,
    JobType,
    LeaseStatus,
    NodeStatus,
    WorkerStatus,
)
from workflows.rules.jobs.artifacts import written_volumes
from workflows.rules.jobs.data_places import awaits_data, destination_of
from workflows.rules.jobs.resources import resources_of

TERMINATED = EndRequest(reason="its workflow was terminated in Temporal", code="terminated")
_WORKERS = TypeAdapter(tuple[WorkerProgress, ...])
_USAGES = TypeAdapter(tuple[WorkerUsage, ...])


def start_job(_: Session, row: Job) -> WorkflowStart[JobRequest]:
    """The start of a job's workflow."""
    spec = submission_of(row.spec)
    gpu_types = resources_of(spec).gpu_types
    chosen = settings()
    has_output = spec.data.output is not None
    request = JobRequest(
        job_id=row.id,
        account_id=row.account_id,
        project_id=row.project_id,
        name=row.name,
        type=JobType(row.type),
        worker_count=len(spec.workers),
        gpu_types=gpu_types,
        end_all_on_failure=spec.safety.end_all_on_failure,
        keeps_output=spec.keeps_output if row.federated_id is None else has_output,
        grace_s=chosen.job_end_grace_s,
        unreachable_limit_s=chosen.job_unreachable_limit_s,
        billing_period_s=chosen.billing_period_s,
        max_restarts=spec.safety.max_restarts,
        max_retries=spec.safety.max_retries,
        max_duration_s=spec.safety.max_duration_s,
        # A snapshot would be stored beside the datastore, where the output alone goes.
        state_interval_s=chosen.state_interval_s if row.federated_id is None else 0,
        volumes=written_volumes(spec),
        auto_terminate=spec.safety.auto_terminate,
        idle_timeout_s=spec.idle_timeout_s,
        delivers_output=destination_of(spec) is not None,
        awaits_data=awaits_data(spec),
        removal=row.status == JobStatus.REMOVING,
        sequence=row.sequence,
    )
    found_by = {"ProjectId": row.project_id, "JobType": row.type}
    if gpu_types:
        found_by["GpuType"] = gpu_types[0]
    return workflow_start(row, request, found_by)


def resume_job(session: Session, row: Job, request: JobRequest) -> JobRequest:
    """The request that adopts a job: its workflow looks at what runs, and goes on."""
    if request.removal:
        return request
    status = JobStatus(row.status)
    waits = status is JobStatus.WAITING_FOR_RESOURCES
    # The row of an attempt that was lost has its workers until the next attempt waits.
    is_over = waits and (bool(row.workers) or row.retry_at is not None)
    workers = () if waits else _at_present_addresses(session, row)
    leased = any(one.assignment is not None and one.assignment.can_be_lost for one in workers)
    lost = _unreachable_nodes(session, row.id)
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
        snapshot_bytes=_snapshot_bytes(row, request),
        log_bytes=row.log_bytes,
        output_bytes=row.output_bytes,
        unsettled=_USAGES.validate_python(row.unsettled or ()),
        reason=row.status_reason if waits else None,
        ending=None if row.ending is None else JobEnding.model_validate(row.ending),
        is_delivering=row.delivery_status == DeliveryStatus.PENDING,
        gone=_machines_gone(session, workers),
        is_adopted=True,
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def end_job(request: JobRequest) -> JobRequest:
    """The request of a job whose workflow a person has ended in Temporal.

    The workflow ends the runs that are left, bills them, and releases the allocations. A stopped
    job has no runs left, and stays stopped. One that was to end already ends as it was to.
    """
    progress = request.resumed_from
    stays = progress is None or progress.status is JobStatus.STOPPED or _ends_anyway(progress)
    return request if stays else request.model_copy(update={"ending": TERMINATED})


def _ends_anyway(progress: JobProgress) -> bool:
    """Whether somebody had asked for the end before, or the attempt had failed by itself."""
    return progress.ending is not None and not progress.ending.request.goes_on


def _snapshot_bytes(row: Job, request: JobRequest) -> dict[int, int]:
    """The stored snapshot of the only worker; of several their sum is not enough."""
    return {0: row.state_bytes} if row.state_bytes and request.worker_count == 1 else {}


def _unseen(worker: WorkerProgress, unreachable: Mapping[str, datetime]) -> WorkerProgress:
    """A worker whose command may run on is not lost: its end is to be confirmed once more."""
    node_id = worker.assignment.node.node_id if worker.assignment is not None else None
    if worker.status is WorkerStatus.LOST and node_id in unreachable:
        return worker.model_copy(update={"status": WorkerStatus.RUNNING})
    return worker


def _at_present_addresses(session: Session, row: Job) -> tuple[WorkerProgress, ...]:
    """The workers of a job; a node may have moved while nobody could tell the job."""
    workers = _WORKERS.validate_python(row.workers)
    node_ids = {one.assignment.node.node_id for one in workers if one.assignment is not None}
    query = (
        select(Node, Region)
        .join(Region, col(Region.id) == Node.region_id)
        .where(col(Node.id).in_(node_ids), col(Node.host).is_not(None))
    )
    there = {node.id: address_of(node, region) for node, region in session.exec(query).all()}
    return tuple(_at(one, there) for one in workers)


def _at(worker: WorkerProgress, there: Mapping[str, NodeAddress]) -> WorkerProgress:
    if worker.assignment is None or worker.assignment.node.node_id not in there:
        return worker
    address = there[worker.assignment.node.node_id]
    if address.minion_id != worker.assignment.node.minion_id:
        return worker  # The node has another machine now.
    assignment = worker.assignment.model_copy(update={"node": address})
    return worker.model_copy(update={"assignment": assignment})


def _machines_gone(session: Session, workers: Sequence[WorkerProgress]) -> tuple[MachineGone, ...]:
    """The leased machines of these workers that have ended, as their leases say."""
    nodes = {
        one.assignment.lease_id: one.assignment.node.node_id
        for one in workers
        if one.assignment is not None and one.assignment.lease_id is not None
    }
    ended = [status for status in LeaseStatus if status.is_final]
    query = select(Lease).where(col(Lease.id).in_(nodes), col(Lease.status).in_(ended))
    return tuple(
        MachineGone(
            node_id=nodes[lease.id], reason=lease.status_reason or "", ended_at=lease.ended_at
        )
        for lease in session.exec(query.order_by(col(Lease.id))).all()
    )


def _unreachable_nodes(session: Session, job_id: str) -> dict[str, datetime]:
    """The job's unreachable nodes, and since when: the lost workflow had been notified of them."""
    query = (
        select(Node.id, Node.updated_at)
        .join(Allocation, col(Allocation.node_id) == Node.id)
        .where(
            col(Allocation.job_id) == job_id,
            is_of_job(),
            col(Node.status).in_((NodeStatus.OFFLINE, NodeStatus.ARCHIVED)),
        )
    )
    return dict(session.exec(query).all())
