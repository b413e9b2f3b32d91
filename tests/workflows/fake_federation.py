"""Federated jobs in the fake world: what both parties allow, and how far each one's job is."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.workflows.fake_daily_billing import DailyBilling
from workflows.contracts.base import Done
from workflows.contracts.federation import PartyWords
from workflows.contracts.statuses import JobStatus
from workflows.effects import federation


@dataclass
class FederatedFacts:
    """One federated job: its rows, its job, and what is stored of its model."""

    refusals: tuple[str, ...] = ()
    refused: PartyWords | None = None
    end_reason: str | None = None
    job: JobStatus | None = None
    """The status of its job; None: it is not created."""
    job_reason: str | None = None
    """Why its job has ended, for the consumer."""
    is_billed: bool = True
    is_sealed: bool = False
    jobs_created: int = 0
    times_sealed: int = 0
    ends: list[str] = field(default_factory=list)
    """Why its job was asked to end, each time."""

    @property
    def has_ended(self) -> bool:
        return self.job is not None and self.job.is_final


@dataclass
class Federations(DailyBilling):
    """Methods named like effects implement them."""

    federated: dict[str, FederatedFacts] = field(
        default_factory=lambda: defaultdict(FederatedFacts)
    )
    rows: dict[str, Any] = field(default_factory=dict)

    def review_federation(self, asked: federation.ReviewFederation) -> federation.FederationReview:
        facts, row = self.federated[asked.federated_id], self.rows.get(asked.federated_id)
        return federation.FederationReview(
            refusals=facts.refusals,
            refused=facts.refused,
            end_reason=facts.end_reason,
            has_job=facts.job is not None,
            job_status=facts.job,
            job_reason=facts.job_reason,
            is_billed=facts.is_billed,
            sequence=row.sequence if row else 0,
        )

    def isolate_model(self, asked: federation.IsolateModel) -> Done:
        facts = self.federated[asked.federated_id]
        facts.times_sealed += not facts.is_sealed
        facts.is_sealed = True
        return Done()

    def create_federated_job(
        self, asked: federation.CreateFederatedJob
    ) -> federation.FederatedJobCreated:
        facts = self.federated[asked.federated_id]
        if facts.job is not None:
            return federation.FederatedJobCreated()
        if facts.refusals or facts.end_reason is not None:
            ends = () if facts.end_reason is None else (facts.end_reason,)
            return federation.FederatedJobCreated(refusals=(*ends, *facts.refusals))
        facts.job, facts.jobs_created = JobStatus.NEW, facts.jobs_created + 1
        return federation.FederatedJobCreated()

    def end_federated_job(self, asked: federation.EndFederatedJob) -> Done:
        facts = self.federated[asked.federated_id]
        if facts.job is not None and not facts.has_ended:
            facts.ends.append(asked.reason)
            facts.job = JobStatus.CANCELED
        return Done()

    def withdraw_model(self, asked: federation.WithdrawModel) -> Done:
        self.federated[asked.federated_id].is_sealed = False
        return Done()
