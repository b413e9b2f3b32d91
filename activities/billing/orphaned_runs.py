"""Billing of orphaned runs, which ended while no job's workflow watched them."""

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.billing.usage import post_worker_usage
from activities.db.session import database
from activities.db.tables import Allocation
from workflows.contracts.base import Done
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.nodes import RunSeen
from workflows.effects.nodes import BillOrphanedRuns


@activity.defn
def bill_orphaned_runs(command: BillOrphanedRuns) -> Done:
    """Post the measured usage of orphaned runs; skip runs of jobs that have no allocation.

    Raises: ApplicationError, the first refusal, after all runs were tried.
    """
    refused: ApplicationError | None = None
    for run in command.runs:
        try:
            with database().write() as session:
                usage = _usage_of(session, run)
                if usage is not None:
                    post_worker_usage(session, usage)
        except ApplicationError as refusal:
            refused = refused or refusal
    if refused is not None:
        raise refused
    return Done()


def _usage_of(session: Session, run: RunSeen) -> WorkerUsage | None:
    """The usage of a run; None when the run never had an allocation or measured less than 1 s."""
    placed_at = session.exec(
        select(Allocation.created_at).where(
            col(Allocation.job_id) == run.job_id,
            col(Allocation.worker) == run.worker,
            col(Allocation.attempt) == run.attempt,
        )
    ).first()
    if placed_at is None or run.elapsed_s < 1:
        return None
    return WorkerUsage(
        job_id=run.job_id,
        worker=run.worker,
        attempt=run.attempt,
        started_at=run.started_at or placed_at,
        through_s=int(run.elapsed_s),
    )
