"""What the billing of a job begins with: the workers that have started, and since when."""

from collections.abc import Iterable

from workflows.contracts.billing import BilledWorker, BillingRequest
from workflows.contracts.jobs import JobRequest, WorkerProgress


def billing_of(
    request: JobRequest, attempt: int, workers: Iterable[WorkerProgress]
) -> BillingRequest | None:
    """The billing of one attempt of a job; None, where no worker has started."""
    billed = tuple(
        BilledWorker(
            worker=worker.index,
            run_id=worker.run_id,
            node=worker.assignment.node,
            started_at=worker.started_at,
        )
        for worker in workers
        if worker.assignment and worker.run_id and worker.started_at
    )
    if not billed:
        return None
    return BillingRequest(
        job_id=request.job_id,
        account_id=request.account_id,
        attempt=attempt,
        started_at=min(worker.started_at for worker in billed),
        workers=billed,
        period_s=request.billing_period_s,
    )
