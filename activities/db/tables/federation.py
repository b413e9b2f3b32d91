"""The table of federated jobs."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, LargeBinary, Text
from sqlmodel import Column, Field

from activities.db.instants import Instant
from activities.db.tables.columns import LifecycleRow, index_where, json_column


class FederatedJob(LifecycleRow, table=True):
    """A federated job; `account_id` is the creator's, which owns the model.

    `spec` is the validated submission of its job without the values of its variables, which are in
    `sealed_variables`.
    """

    __tablename__ = "federated_jobs"
    consumer_account_id: str = Field(foreign_key="accounts.id")
    """The owner of the project, on whose machines and data the job runs."""
    project_id: str = Field(foreign_key="projects.id")
    model_id: str
    creator_user_id: str
    type: str
    job_id: str = Field(unique=True)
    """The id of the job, also before the job is created."""
    spec: dict[str, Any] = json_column()
    sealed_variables: bytes | None = None
    egress: list[str] | None = json_column(nullable=True)
    """What the runs of the job may reach; None: the job is not created, or may reach nothing."""
    logs: str | None = None
    """A `LogPolicy`; None: the job is not created yet."""
    sealed_model: dict[str, Any] | None = json_column(nullable=True)
    """A `SealedModel`; None: none is sealed, or it was withdrawn."""
    sealed_key: bytes | None = Field(default=None, sa_column=Column(LargeBinary, nullable=True))
    """The key of the sealed model, itself sealed; None: there is none, or it was withdrawn."""
    creator_reason: str | None = Field(default=None, sa_type=Text)
    """Why it has ended, with the causes of the creator's side; None: `status_reason` says it."""
    consumer_reason: str | None = Field(default=None, sa_type=Text)
    """As `creator_reason`, for the consumer. `status_reason` and events are for both parties."""
    end_reason: str | None = Field(default=None, sa_type=Text)
    """Why a person wants it to end; None: nobody does."""
    end_requested_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        Index("federated_jobs_by_account", "account_id", "id"),
        Index("federated_jobs_by_consumer", "consumer_account_id", "id"),
        index_where(
            "status NOT IN ('settled', 'refused')", "federated_jobs_open_by_project", "project_id"
        ),
        index_where(
            "status NOT IN ('settled', 'refused')", "federated_jobs_open_by_account", "account_id"
        ),
    )
