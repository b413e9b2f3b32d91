"""The job of a federated job: reviewed, created once both parties allow it, and ended."""

from sqlmodel import Session
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.uses import data_bytes_of
from activities.db.session import database
from activities.db.tables import FederatedJob, Job, Project
from activities.federation.models import ENDED
from activities.federation.parties import confinement_by, parties_of
from activities.jobs.creation import NewJob, add_job
from activities.jobs.submissions import submission_of
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import enqueue
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.federation import LogPolicy
from workflows.contracts.jobs import EndRequest, JobEnding
from workflows.contracts.statuses import JobStatus
from workflows.effects.federation import (
    CreateFederatedJob,
    EndFederatedJob,
    FederatedJobCreated,
    FederationReview,
    ReviewFederation,
)
from workflows.rules.federation.parties import refusals_of, words_of

CONSENT_WITHDRAWN = "consent-withdrawn"
"""The code of the end that a federated job asks its job for."""


@activity.defn
def review_federation(command: ReviewFederation) -> FederationReview:
    """What both parties allow now, and how far the job is.

    Raises: NotFound, when there is no such federated job.
    """
    with database().read() as session:
        row = _federated_job(session, command.federated_id)
        job = session.get(Job, row.job_id)
        refusals = refusals_of(parties_of(session, row))
        reason = None if job is None else _reason_of(job, row)
        return FederationReview(
            refusals=tuple(each.words_for(None) for each in refusals),
            refused=words_of(refusals, is_one_owner=_is_one_owner(row)),
            end_reason=row.end_reason,
            has_job=job is not None,
            job_status=None if job is None else JobStatus(job.status),
            job_reason=reason,
            creator_job_reason=reason if _is_shown_to_creator(row) else None,
            is_billed=job is None or job.unsettled is None,
            sequence=row.sequence,
        )


@activity.defn
def create_federated_job(command: CreateFederatedJob) -> FederatedJobCreated:
    """Create the job if both parties still allow it; a second call finds it.

    The rows of both are held until it is created, so that a consent that is withdrawn meanwhile
    counts: who withdraws it then finds a federated job that has a job.
    Raises: NotFound, when there is no such federated job.
    """
    with database().write() as session:
        row = _federated_job(session, command.federated_id, locked=True)
        if session.get(Job, row.job_id) is not None:
            return FederatedJobCreated()
        if row.status in ENDED:
            # An activity attempt that was held up may begin after the refusal, or the withdrawal.
            return FederatedJobCreated(refusals=(f"{row.id}: is {row.status} already",))
        project = session.get_one(Project, row.project_id, with_for_update={"read": True})
        if row.end_reason is not None:
            return FederatedJobCreated(refusals=(row.end_reason,))
        refusals = refusals_of(parties_of(session, row))
        if refusals:
            return FederatedJobCreated(
                refusals=tuple(each.words_for(None) for each in refusals),
                refused=words_of(refusals, is_one_owner=_is_one_owner(row)),
            )
        given = confinement_by(project)
        row.egress, row.logs = list(given.egress) or None, given.logs.value
        session.add(row)
        submission = submission_of(row.spec)
        job = NewJob(
            id=row.job_id,
            project_id=project.id,
            account_id=project.account_id,
            creator_user_id=row.creator_user_id,
            creator_account_id=row.account_id,
            submission=submission,
            sealed_variables=row.sealed_variables,
            data_bytes=data_bytes_of(session, submission),
            federated_id=row.id,
        )
        _, request_id = add_job(session, job, command.at)
    relay_soon([request_id])
    return FederatedJobCreated()


@activity.defn
def end_federated_job(command: EndFederatedJob) -> Done:
    """Ask the job to end; silent when it has ended, or was never created.

    Raises: NotFound, when there is no such federated job.
    """
    with database().write() as session:
        row = _federated_job(session, command.federated_id, locked=True)
        job = session.get(Job, row.job_id)
        if job is None or JobStatus(job.status).is_final:
            return Done()
        request = EndRequest(reason=command.reason, code=CONSENT_WITHDRAWN, discards=False)
        request_id = enqueue(session, job.id, "cancel", request, command.at)
    relay_soon([request_id])
    return Done()


def _federated_job(session: Session, federated_id: str, *, locked: bool = False) -> FederatedJob:
    row = session.get(FederatedJob, federated_id, with_for_update=locked)
    if row is None:
        raise ApplicationError(f"{federated_id}: there is no such federated job", type=NOT_FOUND)
    return row


def _is_one_owner(row: FederatedJob) -> bool:
    return row.account_id == row.consumer_account_id


def _is_shown_to_creator(row: FederatedJob) -> bool:
    """Whether the creator reads why the job ended, which may name what the consumer has."""
    return _is_one_owner(row) or row.logs == LogPolicy.ALL


def _reason_of(job: Job, row: FederatedJob) -> str | None:
    """Why the job has its status, as the platform or a person says it.

    What its own command said comes from its log, and is shown only where the log is.
    """
    if job.ending is not None:
        return JobEnding.model_validate(job.ending).request.reason
    return job.status_reason if row.logs == LogPolicy.ALL else None
