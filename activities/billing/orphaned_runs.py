"""Billing of orphaned runs, which ended while no job's workflow watched them."""

from datetime import UTC, datetime

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.billing.usage import post_worker_usage
from activities.db.session import database
from activities.db.tables import Allocation
from activities.placement.allocation_states import is_leaving
from activities.placement.allocations import free_allocations, lock_allocations, lock_jobs
from activities.placement.wake import wake_placement
from workflows.contracts.base import Done
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.nodes import RunSeen
from workflows.effects.nodes import BillOrphanedRuns


@activity.defn
def bill_orphaned_runs(command: BillOrphanedRuns) -> Done:
    """Post the measured usage of orphaned runs; skip those without an allocation on the node.

    A run that is still alive is billed as far as it has run. The end of a run frees its leaving
    allocation on the node, in the transaction that posts the last of its usage.

    Raises: ApplicationError, the first refusal, after all runs were tried.
    """
    refused: ApplicationError | None = None
    freed = False
    for run in command.runs:
        try:
            freed = _bill(command.node_id, run) or freed
        except ApplicationError as refusal:
            refused = refused or refusal
    if freed:
        wake_placement()
    if refused is not None:
        raise refused
    return Done()


def _bill(node_id: str, run: RunSeen) -> bool:
    """Post the usage of a run, then free what it held; return whether that was anything."""
    while True:
        with database().write() as session:
            lock_jobs(session, [run.job_id])
            usage = _usage_of(session, node_id, run)
            if usage is None or post_worker_usage(session, usage).is_all:
                return _free(session, node_id, run)


def _free(session: Session, node_id: str, run: RunSeen) -> bool:
    """Free what the node holds for a run that has ended, and return whether that was anything."""
    if run.alive:
        return False
    left = lock_allocations(session, *_is_of(run), col(Allocation.node_id) == node_id, is_leaving())
    free_allocations(session, left, datetime.now(UTC))
    return bool(left)


def _is_of(run: RunSeen) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Allocation.job_id) == run.job_id,
        col(Allocation.worker) == run.worker,
        col(Allocation.attempt) == run.attempt,
    )


def _usage_of(session: Session, node_id: str, run: RunSeen) -> WorkerUsage | None:
    """The usage of a run; None when it has no allocation on the node, or measured less than 1 s.

    A node says nothing of the runs of other nodes that anybody believes.
    """
    placed_at = session.exec(
        select(Allocation.created_at).where(*_is_of(run), col(Allocation.node_id) == node_id)
    ).first()
    if placed_at is None or run.elapsed_s < 1:
        return None
    started_at = run.started_at or placed_at  # By the node's clock, which may show any instant.
    return WorkerUsage(
        job_id=run.job_id,
        worker=run.worker,
        attempt=run.attempt,
        started_at=min(max(started_at, placed_at), datetime.now(UTC)),
        through_s=int(run.elapsed_s),
        node_started_at=run.started_at,
        node_ended_at=run.finished_at,
    )
