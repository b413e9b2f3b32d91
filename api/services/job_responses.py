"""The responses of jobs: what a caller reads of them, of their placement, and of why they wait."""

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from activities.db import tables
from activities.jobs.submissions import submission_of
from activities.placement.refusals import refusals_of_jobs
from api.authorization import Caller
from api.schemas import jobs as schemas
from api.services.job_figures import JobFigures
from api.services.lifecycles import GONE
from api.services.ownership import knows_output, lifecycle
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.statuses import JobStatus
from workflows.rules.jobs.resources import resources_of
from workflows.rules.placement.cloud_refusals import BEING_MADE
from workflows.rules.placement.volumes import TAKEN

ENDED = tuple(status.value for status in JobStatus if status.is_final)
MASK = "********"
GPUS_MISSING = {"gpu-type", "gpu-count", "shortage", "quota", "workers", BEING_MADE, "no-offers"}
"""Codes of refusals for which a job that asks for GPUs waits for these."""


def job_responses(
    session: Session, caller: Caller, rows: Sequence[tables.Job]
) -> list[schemas.Job]:
    """The jobs of these rows as a caller may see them, with the refusals of those that wait."""
    figures = JobFigures(session, caller, rows)
    return [_job_response(row, figures) for row in rows]


def job_response(session: Session, caller: Caller, row: tables.Job) -> schemas.Job:
    return job_responses(session, caller, [row])[0]


def _job_response(row: tables.Job, figures: JobFigures) -> schemas.Job:
    spec = submission_of(row.spec)
    masked = dict.fromkeys(spec.environment.variables, MASK)
    refusals, accrued = figures.refusals[row.id], figures.accrued[row.id]
    machines = figures.machine_costs.get(row.id)
    waits = row.status == JobStatus.WAITING_FOR_RESOURCES
    told = [each["detail"] for each in refusals if each["code"] in (BEING_MADE, TAKEN)]
    reason = told[0] if waits and told else figures.people.named(row.status_reason)
    started_at, elapsed_s = figures.elapsed(row)
    return schemas.Job(
        **lifecycle(row) | {"status_reason": reason},
        status_label=_status_label(row, spec, refusals),
        type=row.type,
        project_id=row.project_id,
        creator_user_id=row.creator_user_id,
        creator_account_id=row.creator_account_id,
        priority=row.priority,
        attempt=row.attempt,
        retries=row.retries,
        retry_at=row.retry_at,
        resources=spec.resources,
        environment=spec.environment.model_copy(update={"variables": masked}),
        code=spec.code,
        data=spec.data,
        input_id=figures.inputs.get(row.id),
        delivery_status=row.delivery_status,
        commands=list(spec.workers),
        placement=spec.placement,
        safety=spec.safety,
        port=spec.port,
        labels=spec.labels,
        reservation_id=spec.reservation_id,
        workers=[figures.worker(row, worker, spec.port) for worker in row.workers],
        placement_refusals=[schemas.PlacementRefusal(**found) for found in refusals],
        started_at=started_at,
        elapsed_s=elapsed_s,
        gpu_seconds=row.gpu_seconds,
        charged_microcredits=row.charged_microcredits,
        unposted_microcredits=accrued.unposted_microcredits,
        microcredits_per_hour=accrued.microcredits_per_hour,
        machine_cost_microcredits=machines.microcredits if machines else 0,
        machine_microcredits_per_hour=machines.microcredits_per_hour if machines else None,
        machine_cost_is_estimate=machines is not None and machines.is_estimate,
        output_bytes=row.output_bytes if knows_output(figures.caller, row) else None,
    )


def _status_label(row: tables.Job, spec: JobSubmission, refusals: list[dict[str, Any]]) -> str:
    """The status in the words of its code, with what the job waits for, and in which retry."""
    waits = row.status == JobStatus.WAITING_FOR_RESOURCES
    refused = {refusal["code"] for refusal in refusals}
    words = row.status.replace("_", " ")
    retry = f"retry {row.retries} of {spec.safety.max_retries}" if row.retries else ""
    if row.retry_at is not None:
        return f"pausing before {retry}"
    if row.status in (*ENDED, *GONE, JobStatus.STOPPED):
        return words
    missing = waits and refused & GPUS_MISSING and resources_of(spec).gpu_count
    volume = waits and TAKEN in refused
    more = ", ".join(filter(None, ("GPUs" if missing else "", "a volume" * volume, retry)))
    return f"{words}: {more}" if more else words


def placement_response(session: Session, row: tables.Job) -> schemas.JobPlacement:
    """The allocations of a job's attempts, and the refusals while the job waits."""
    refusals = refusals_of_jobs(session, [row])[row.id]
    allocations = session.exec(
        select(tables.Allocation, tables.Node)
        .join(tables.Node, col(tables.Node.id) == col(tables.Allocation.node_id))
        .where(tables.Allocation.job_id == row.id)
        .order_by(col(tables.Allocation.attempt), col(tables.Allocation.worker))
    )
    return schemas.JobPlacement(
        job_id=row.id,
        status=row.status,
        attempt=row.attempt,
        assignments=[
            schemas.JobAssignment(
                worker=allocation.worker,
                attempt=allocation.attempt,
                node_id=node.id,
                node_name=node.name,
                region_id=node.region_id,
                gpu_indices=allocation.gpu_indices,
                cpu_count=allocation.cpu_count,
                memory_bytes=allocation.memory_bytes,
                state=allocation.state,
                reserved_at=allocation.created_at,
                released_at=allocation.released_at,
            )
            for allocation, node in allocations
        ],
        refusals=[schemas.PlacementRefusal(**found) for found in refusals],
    )
