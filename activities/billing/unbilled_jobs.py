"""Running jobs whose job billing was terminated from outside, so that it is started again.

Earlier postings remain, and the new job billing posts the usage since then at its first wakeup.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter
from sqlmodel import Session, col, select

from activities.billing.job_billing import billing_id
from activities.db.session import database
from activities.db.tables import Job
from activities.jobs.starts import start_job
from workflows.contracts.billing import BillingRequest
from workflows.contracts.jobs import WorkerProgress
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.billing_request import billing_of

_WORKERS = TypeAdapter(tuple[WorkerProgress, ...])
_METERED = (JobStatus.RUNNING, JobStatus.UNREACHABLE)


def lost_bills(running: Collection[str], quiet_for: timedelta) -> list[BillingRequest]:
    """The requests that start job billing again for running jobs that have none.

    running: the ids of all running workflows.
    quiet_for: jobs that changed within this time are left out, because they may just be starting
    or ending their job billing themselves.
    """
    with database().read() as session:
        job_ids = session.exec(
            select(Job.id).where(
                col(Job.status).in_(_METERED),
                col(Job.updated_at) < datetime.now(UTC) - quiet_for,
            )
        ).all()
        lost = [
            job_id
            for job_id in job_ids
            if workflow_id_of(job_id) in running and billing_id(job_id) not in running
        ]
        return [bill for job_id in lost if (bill := _bill_of(session, job_id)) is not None]


def _bill_of(session: Session, job_id: str) -> BillingRequest | None:
    """The billing request of a job; None when none of its workers has started."""
    job = session.get_one(Job, job_id)
    request = start_job(session, job).argument
    return billing_of(request, job.attempt, _WORKERS.validate_python(job.workers))
