"""What may end federated jobs: their lifecycles are woken by whatever they review."""

from datetime import datetime

from sqlalchemy import ColumnElement, true
from sqlmodel import Session, col, select

from activities.db.tables import FederatedJob, Job
from activities.outbox.requests import wake
from workflows.contracts.lifecycles import FEDERATED
from workflows.contracts.statuses import JobStatus


def wake_federated_of_project(
    session: Session, project_id: str, at: datetime, user_id: str | None = None
) -> list[str]:
    """Let the open federated jobs of a project ask both parties again; return the outbox rows' ids.

    user_id: those that this user has created alone; None: all.
    """
    of_user = true() if user_id is None else col(FederatedJob.creator_user_id) == user_id
    return _wake(session, col(FederatedJob.project_id) == project_id, of_user, at)


def wake_federated_of_account(
    session: Session, account_id: str, at: datetime, user_id: str | None = None
) -> list[str]:
    """Let the open federated jobs that an account has created ask both parties again.

    user_id: those that this user has created alone; None: all. Returns the outbox rows' ids.
    """
    of_user = true() if user_id is None else col(FederatedJob.creator_user_id) == user_id
    return _wake(session, col(FederatedJob.account_id) == account_id, of_user, at)


def wake_federated_of_job(session: Session, job_id: str, status: str, at: datetime) -> list[str]:
    """Tell the federated job of a job that the job has ended; none of other jobs and statuses."""
    if not JobStatus(status).is_final:
        return []
    federated_id = session.exec(select(Job.federated_id).where(Job.id == job_id)).first()
    return [] if federated_id is None else [wake(session, federated_id, at)]


def _wake(
    session: Session, condition: ColumnElement[bool], also: ColumnElement[bool], at: datetime
) -> list[str]:
    ended = sorted(FEDERATED.final_statuses)
    is_open = col(FederatedJob.status).not_in(ended)
    found = select(FederatedJob.id).where(condition, also, is_open)
    return [wake(session, each, at) for each in session.exec(found.order_by(col(FederatedJob.id)))]
