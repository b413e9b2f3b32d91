"""What the run specs of a federated job have beside those of other jobs: its confinement."""

from dataclasses import dataclass

from sqlmodel import Session
from temporalio.exceptions import ApplicationError

from activities.db.tables import FederatedJob, Job
from activities.federation.models import sealed_model_of
from activities.federation.parties import confinement_of
from workflows.contracts.errors import WORK_REFUSED
from workflows.contracts.federation import FederatedRun
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs.resources import needs_attestation


@dataclass(frozen=True)
class FederatedInputs:
    """How the runs of a job are confined, and what they have beside the sealed model."""

    submission: JobSubmission
    """Without the model of a federated job, which no run gets as other content."""
    federation: FederatedRun | None = None
    model_key: str | None = None
    """None: there is none, or it is released against an attestation alone."""


def federated_inputs(session: Session, job: Job, submission: JobSubmission) -> FederatedInputs:
    """The confinement of a job; that of a job which is its project's own is none.

    Raises: WorkRefused, when the model of a federated job was withdrawn.
    """
    if job.federated_id is None:
        return FederatedInputs(submission)
    row = session.get_one(FederatedJob, job.federated_id)
    given, sealed = confinement_of(row), sealed_model_of(row)
    if given is None or sealed is None:
        raise ApplicationError(
            f"{job.id}: asked the model of {row.id}: it was withdrawn", type=WORK_REFUSED
        )
    model, key = sealed
    is_attested = needs_attestation(submission)
    federation = FederatedRun(
        federated_id=row.id,
        egress=given.egress,
        logs=given.logs,
        model=model,
        needs_attestation=is_attested,
    )
    data = submission.data.model_copy(update={"model": None})
    return FederatedInputs(
        submission.model_copy(update={"data": data}),
        federation,
        None if is_attested else key,
    )
