"""Tables of jobs, their uploads, and their allocations on nodes."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import LifecycleRow, index_where, json_column, one_of
from workflows.contracts.statuses import AllocationState


class Upload(SQLModel, table=True):
    """An archive of code or data; equal bytes are stored once, under their SHA-256."""

    __tablename__ = "uploads"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    sha256: str = Field(index=True)
    size_bytes: int = Field(sa_type=BigInteger)
    created_at: datetime = Field(sa_type=Instant)
    named_at: datetime | None = Field(default=None, sa_type=Instant)
    """When a job was last submitted with it."""
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the removal of the stored bytes began; the row goes after them."""


class Job(LifecycleRow, table=True):
    """A job; `spec` is the validated submission without the values of its variables.

    The values are in `sealed_variables`.
    """

    __tablename__ = "jobs"
    project_id: str = Field(foreign_key="projects.id", index=True)
    creator_user_id: str | None = None
    creator_account_id: str | None = None
    """Who submitted the job, and for which account; None: an earlier release has not said it."""
    federated_id: str | None = Field(default=None, index=True)
    """The federated job whose job it is; None: the job is its project's own."""
    type: str
    priority: int = 3
    spec: dict[str, Any] = json_column()
    sealed_variables: bytes | None = None
    attempt: int = 1
    restarts: int = 0
    """How often the job has restarted since a person started it."""
    retries: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How often the job was tried again since a person started it."""
    retry_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the pause before a retry ends; None: there is no pause."""
    ran_s: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How long the commands of earlier attempts have run, since a person started the job."""
    ending: dict[str, Any] | None = json_column(nullable=True)
    """The end that the job was asked for, a `JobEnding`; None: it was not asked to end."""
    unsettled: list[dict[str, Any]] | None = Field(
        default=None, sa_column=Column(JSON(none_as_null=True), nullable=True)
    )
    """The usage that could not be posted, each a `WorkerUsage`; None: all is posted."""
    workers: list[dict[str, Any]] = json_column()
    demand_key: str | None = None
    """See `demand_key` of the rules; None: the next planning round computes it."""
    waiting_since: datetime | None = Field(default=None, sa_type=Instant)
    placement_refusals: list[dict[str, Any]] = json_column()
    """What concerns this job alone; `DemandRefusalsRow` has what it shares with others."""
    rates: dict[str, Any] | None = json_column(nullable=True)
    gpu_seconds: int = Field(default=0, sa_type=BigInteger)
    charged_microcredits: int = Field(default=0, sa_type=BigInteger)
    output_bytes: int | None = Field(default=None, sa_type=BigInteger)
    log_bytes: int | None = Field(default=None, sa_type=BigInteger)
    """The stored logs of all attempts that have ended."""
    state_bytes: int | None = Field(default=None, sa_type=BigInteger)
    """The stored state snapshots, when the last step was recorded."""
    delivery_status: str | None = None
    """A `DeliveryStatus`; None: the output is not sent to a destination, or not yet."""
    data_bytes: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """The disk that the datasets, the model, the checkpoints and the volumes of each worker took
    when the job was submitted."""
    __table_args__ = (
        index_where("unsettled IS NOT NULL", "jobs_unsettled", "updated_at"),
        Index("jobs_by_account", "account_id", "id"),
        index_where(
            "status NOT IN ('finished', 'failed', 'canceled', 'archived')",
            "jobs_open_by_account",
            "account_id",
        ),
        index_where(
            "output_bytes IS NOT NULL", "jobs_with_output", "account_id", "status", "output_bytes"
        ),
        Index(
            "jobs_by_demand",
            "status",
            "project_id",
            "priority",
            "demand_key",
            "waiting_since",
            "id",
            "attempt",
        ),
    )


class JobLabel(SQLModel, table=True):
    """One label of a job, by which jobs are listed; the job's `spec` has them too."""

    __tablename__ = "job_labels"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    key: str = Field(primary_key=True)
    value: str
    account_id: str
    """That of the job, so that no account reads through the labels of others."""
    __table_args__ = (Index("job_labels_by_account", "account_id", "key", "value", "job_id"),)


class DemandRefusalsRow(SQLModel, table=True):
    """The refusals of the waiting jobs of one project with equal demands."""

    __tablename__ = "demand_refusals"
    project_id: str = Field(primary_key=True, foreign_key="projects.id")
    demand_key: str = Field(primary_key=True)
    refusals: list[dict[str, Any]] = json_column()


class Allocation(SQLModel, table=True):
    """The allocation of one worker of one attempt of a job on a node; live until it is gone."""

    __tablename__ = "allocations"
    id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="jobs.id", index=True)
    worker: int
    attempt: int
    node_id: str = Field(foreign_key="nodes.id", index=True)
    cpu_count: int
    memory_bytes: int = Field(sa_type=BigInteger)
    gpu_indices: list[int] = json_column()
    port: int | None = None
    reservation_id: str | None = None
    """The reservation that the worker holds; one that its job has left holds none any more."""
    state: str = Field(
        default=AllocationState.HELD, sa_column_kwargs={"server_default": AllocationState.HELD}
    )
    rates: dict[str, Any] | None = json_column(nullable=True)
    """The usage rates of the worker; None: an earlier release has written it, and its job has them.
    """
    created_at: datetime = Field(sa_type=Instant)
    notified_at: datetime | None = Field(default=None, sa_type=Instant)
    released_at: datetime | None = Field(default=None, sa_type=Instant)
    preemption_noticed_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the pre-emption of a guest was announced; None again when the notice was withdrawn."""
    preemption_due_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the notice is over."""
    preempted_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the guest was asked to leave, after the notice; what it runs later is not billed."""
    __table_args__ = (
        CheckConstraint(one_of("state", AllocationState), name="ck_allocations_state"),
        Index("allocations_of_worker", "job_id", "attempt", "worker", unique=True),
        index_where("released_at IS NULL", "allocations_live_by_node", "node_id"),
        index_where(
            "preemption_due_at IS NOT NULL AND preempted_at IS NULL AND released_at IS NULL",
            "allocations_to_preempt",
            "preemption_due_at",
        ),
        index_where(
            "notified_at IS NULL AND released_at IS NULL",
            "allocations_unannounced",
            "created_at",
        ),
        index_where(
            "released_at IS NULL AND port IS NOT NULL",
            "allocations_port_of_node",
            "node_id",
            "port",
            unique=True,
        ),
        index_where(
            "released_at IS NULL AND reservation_id IS NOT NULL AND state != 'leaving'",
            "allocations_reservation",
            "reservation_id",
            unique=True,
        ),
    )


class GpuAllocation(SQLModel, table=True):
    """One GPU that one allocation holds; two live rows for one GPU cannot exist."""

    __tablename__ = "gpu_allocations"
    allocation_id: str = Field(primary_key=True, foreign_key="allocations.id")
    gpu_index: int = Field(primary_key=True)
    node_id: str = Field(foreign_key="nodes.id")
    released_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        index_where(
            "released_at IS NULL",
            "gpu_allocations_live",
            "node_id",
            "gpu_index",
            unique=True,
        ),
    )
