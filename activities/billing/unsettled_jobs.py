"""Usage that a job could not post at its end, posted by the reconciliation."""

from datetime import UTC, datetime, timedelta

import structlog
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select
from temporalio.exceptions import ApplicationError

from activities.billing.usage import post_worker_usage
from activities.db.session import database
from activities.db.tables import Job
from workflows.contracts.billing import WorkerUsage

MOST_JOBS = 100
_USAGES = TypeAdapter(tuple[WorkerUsage, ...])

log = structlog.get_logger("billing")


def post_unsettled(quiet_for: timedelta) -> list[str]:
    """Post the usage of jobs that could not settle, oldest first; return the ids of those jobs.

    A usage meter only moves forwards, so nothing is posted twice. What is refused again is logged,
    and tried by the next reconciliation.

    quiet_for: jobs that changed within this time are left out, because they may still settle.
    """
    before = datetime.now(UTC) - quiet_for
    query = select(Job.id).where(col(Job.unsettled).is_not(None), col(Job.updated_at) < before)
    with database().read() as session:
        job_ids = session.exec(query.order_by(col(Job.updated_at)).limit(MOST_JOBS)).all()
    return [job_id for job_id in job_ids if _post(job_id)]


def _post(job_id: str) -> bool:
    try:
        while not _post_some(job_id):
            pass
    except (ApplicationError, ValueError, SQLAlchemyError):
        log.exception("usage is not posted", job=job_id)
        return False
    return True


def _post_some(job_id: str) -> bool:
    """Post what fits into one transaction, and return whether that was all."""
    with database().write() as session:
        job = session.get_one(Job, job_id, with_for_update=True)
        usages = _USAGES.validate_python(job.unsettled or ())
        posted = [post_worker_usage(session, usage) for usage in usages]
        is_all = all(each.is_all for each in posted)
        if is_all:
            job.unsettled = None
            session.add(job)
        return is_all
