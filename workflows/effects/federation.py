"""Effects of a federated job: both parties are asked, its job is created and ended, its model is
sealed and withdrawn."""

from datetime import datetime

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.federation import PartyWords
from workflows.contracts.statuses import JobStatus
from workflows.effects.effect import HEARTBEAT_S, Effect


class ReviewFederation(Contract):
    """Ask the rows what both parties allow now, and how far the job is."""

    federated_id: str


class FederationReview(Contract):
    refusals: tuple[str, ...] = ()
    """Why it is not allowed, or not any more, for both parties; empty: both allow it."""
    refused: PartyWords | None = None
    """The refusals, for each party; None: `refusals` say it to both."""
    end_reason: str | None = None
    """Why a person wants it to end; None: nobody does."""
    has_job: bool = False
    """Whether the job is created."""
    job_status: JobStatus | None = None
    job_reason: str | None = None
    """Why the job has its status, for the consumer."""
    creator_job_reason: str | None = None
    """As `job_reason`, as far as the creator may know it."""
    is_billed: bool = True
    """Whether all usage of the job is posted, as far as it has run."""
    sequence: int = 0
    """The sequence of the last step in the federated job's row."""

    @property
    def words(self) -> PartyWords:
        return self.refused or PartyWords(both="; ".join(self.refusals))

    @property
    def has_ended(self) -> bool:
        """Whether no job is there that could still run."""
        return not self.has_job or (self.job_status is not None and self.job_status.is_final)


class IsolateModel(Contract):
    """Seal the model with a new key for this federated job alone; a second call finds both."""

    federated_id: str
    at: datetime


class CreateFederatedJob(Contract):
    """Create the job, with its outbox row, if both parties still allow it; a second call finds it.

    What the project allows its runs to reach, and of their logs, is fixed with that.
    """

    federated_id: str
    at: datetime


class FederatedJobCreated(Contract):
    refusals: tuple[str, ...] = ()
    """Why it was not created, for both parties; empty: it was, now or before."""
    refused: PartyWords | None = None
    """The refusals, for each party; None: `refusals` say it to both."""

    @property
    def words(self) -> PartyWords:
        return self.refused or PartyWords(both="; ".join(self.refusals))


class EndFederatedJob(Contract):
    """Ask the job to end; silent when it has ended, or was never created."""

    federated_id: str
    reason: str
    at: datetime


class WithdrawModel(Contract):
    """Remove the sealed model and its key; silent when there are none."""

    federated_id: str


review_federation = Effect("review_federation", ReviewFederation, FederationReview)
isolate_model = Effect(
    "isolate_model",
    IsolateModel,
    Done,
    queue=queues.TRANSFERS,
    start_to_close_s=3600,
    schedule_to_close_s=6 * 3600,
    heartbeat_s=HEARTBEAT_S,
)
create_federated_job = Effect("create_federated_job", CreateFederatedJob, FederatedJobCreated)
end_federated_job = Effect("end_federated_job", EndFederatedJob, Done)
withdraw_model = Effect("withdraw_model", WithdrawModel, Done, start_to_close_s=300)
