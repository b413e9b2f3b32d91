"""Starts of job lifecycles from their rows, and their progress after a restart."""

from datetime import datetime

from pydantic import TypeAdapter
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, Job, Node
from activities.outbox.workflow_starts import WorkflowStart, workflow_start
from activities.placement.allocation_states import is_of_job
from activities.settings import settings
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import EndRequest, JobProgress, JobRequest, WorkerProgress
from workflows.contracts.statuses import JobStatus, JobType, NodeStatus
from workflows.rules.jobs.resources import resources_of

TERMINATED = EndRequest(reason="its workflow was terminated from outside", code="terminated")
_WORKERS = TypeAdapter(tuple[WorkerProgress, ...])


def start_job(_: Session, row: Job) -> WorkflowStart[JobRequest]:
    """The start of a job's workflow."""
    spec = JobSubmission.model_validate(row.spec)
    gpu_types = resources_of(spec).gpu_types
    chosen = settings()
    request = JobRequest(
        job_id=row.id,
        account_id=row.account_id,
        project_id=row.project_id,
        name=row.name,
        type=JobType(row.type),
        worker_count=len(spec.workers),
        gpu_types=gpu_types,
        end_all_on_failure=spec.safety.end_all_on_failure,
        keeps_output=spec.keeps_output,
        grace_s=chosen.job_end_grace_s,
        unreachable_limit_s=chosen.job_unreachable_limit_s,
        billing_period_s=chosen.billing_period_s,
        max_restarts=spec.safety.max_restarts,
        state_interval_s=chosen.state_interval_s,
        auto_terminate=spec.safety.auto_terminate,
        idle_timeout_s=spec.idle_timeout_s,
        removal=row.status == JobStatus.REMOVING,
        sequence=row.sequence,
    )
    found_by = {"ProjectId": row.project_id, "JobType": row.type}
    if gpu_types:
        found_by["GpuType"] = gpu_types[0]
    return workflow_start(row, request, found_by)


def resume_job(session: Session, row: Job, request: JobRequest) -> JobRequest:
    """The request of a job whose workflow is restarted from its row.

    The job does not continue: its workflow ends the runs that are left, bills them, and releases
    the allocations. A stopped job has no runs left, and stays stopped.
    """
    if request.removal:
        return request
    workers = _WORKERS.validate_python(row.workers)
    is_stopped = row.status == JobStatus.STOPPED
    leased = any(one.assignment is not None and one.assignment.can_be_lost for one in workers)
    resumed_from = JobProgress(
        sequence=row.sequence,
        attempt=row.attempt,
        status=JobStatus(row.status),
        workers=workers,
        lost=_unreachable_nodes(session, row.id),
        has_copies=leased or not is_stopped,  # An earlier attempt may have left some.
    )
    return request.model_copy(
        update={"resumed_from": resumed_from, "ending": None if is_stopped else TERMINATED}
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
