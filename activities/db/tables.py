"""Every table. Rows of lifecycle nouns are projections: only `record` writes their status.

Money is integer microcredits, instants are aware UTC, ids are prefixed and time-ordered.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    Text,
    text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant

SQLModel.metadata.naming_convention = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}


def _json(*, nullable: bool = False) -> Any:
    return Field(sa_column=Column(JSON, nullable=nullable))


def _index_where(condition: str, name: str, *columns: str, unique: bool = False) -> Index:
    """An index of those rows alone for which the condition holds."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


class Account(SQLModel, table=True):
    __tablename__ = "accounts"
    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    plan: str = "individual"
    billing_account_id: str | None = Field(default=None, foreign_key="accounts.id")
    is_administrator: bool = False
    wallet_address: str | None = None
    personal_project_id: str
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class User(SQLModel, table=True):
    __tablename__ = "users"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    email: str = Field(unique=True)
    role: str = "owner"
    created_at: datetime = Field(sa_type=Instant)


class ApiKey(SQLModel, table=True):
    """A bearer key; only its SHA-256 is kept."""

    __tablename__ = "api_keys"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    user_id: str = Field(foreign_key="users.id", index=True)
    name: str
    secret_sha256: str = Field(unique=True)
    scopes: list[str] = _json()
    expires_at: datetime | None = Field(default=None, sa_type=Instant)
    revoked_at: datetime | None = Field(default=None, sa_type=Instant)
    last_used_at: datetime | None = Field(default=None, sa_type=Instant)
    created_at: datetime = Field(sa_type=Instant)


class Project(SQLModel, table=True):
    __tablename__ = "projects"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    name: str
    personal: bool = False
    use_only_owned_resources: bool = False
    on_quota_exhausted: str = "reroute"
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class ProjectMember(SQLModel, table=True):
    """A user of another account in a project; permissions: noun to `read` or `all`."""

    __tablename__ = "project_members"
    project_id: str = Field(primary_key=True, foreign_key="projects.id")
    user_id: str = Field(primary_key=True, foreign_key="users.id", index=True)
    permissions: dict[str, str] = _json()
    created_at: datetime = Field(sa_type=Instant)


class StoredSecret(SQLModel, table=True):
    """A sealed value (AES-GCM), named by its place under `store://`."""

    __tablename__ = "stored_secrets"
    name: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    sealed: bytes
    updated_at: datetime = Field(sa_type=Instant)


class LifecycleRow(SQLModel):
    """What every lifecycle noun has. `sequence` is the last step of its workflow written here."""

    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    name: str
    status: str = "new"
    status_reason: str | None = Field(default=None, sa_type=Text)
    sequence: int = 0
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class Provider(LifecycleRow, table=True):
    __tablename__ = "providers"
    kind: str
    payment_mode: str = "credits"
    preferred_credits_microcredits: int | None = Field(default=None, sa_type=BigInteger)
    fee_waived: bool = False
    checks: list[dict[str, Any]] = _json()
    credentials: str | None = None
    """Where its key is, such as `store://providers/gcp/prv-…`; never the key itself."""
    cloud: dict[str, Any] | None = _json(nullable=True)
    """What its key says of itself that is no secret: project, service account, key id."""
    resources: list[dict[str, Any]] | None = _json(nullable=True)
    """What we have made in the cloud for the provider as a whole."""


class Region(LifecycleRow, table=True):
    __tablename__ = "regions"
    provider_id: str = Field(foreign_key="providers.id", index=True)
    provider_kind: str
    storage_mode: str = "local"
    cloud_region: str | None = None
    """What the cloud calls it, such as `us-central1`; None: its machines are one's own."""
    storage_node_class: str | None = None
    public: bool = False
    exclusive_nodes: bool = True
    node_root: str | None = None
    relaxed_requirements: list[str] = _json()
    options: dict[str, Any] = _json()
    __table_args__ = (
        _index_where(
            "status != 'archived'",
            "regions_name_of_account",
            "account_id",
            "name",
            unique=True,
        ),
        _index_where(
            "status != 'archived' AND cloud_region IS NOT NULL",
            "regions_cloud_region_of_account",
            "account_id",
            "cloud_region",
            unique=True,
        ),
    )


class Node(LifecycleRow, table=True):
    __tablename__ = "nodes"
    region_id: str = Field(foreign_key="regions.id", index=True)
    minion_id: str
    """Empty until a machine that is leased for it has been made."""
    type: str = "permanent"
    services: list[str] = _json()
    machine: dict[str, Any] | None = _json(nullable=True)
    """The machine that is leased for it, a `MachineClaim`; None: its owner has it."""
    upnp: bool = True
    mining: bool = False
    host: str | None = None
    port: int = 22
    user: str = "root"
    hardware: dict[str, Any] | None = _json(nullable=True)
    requirements: list[dict[str, Any]] = _json()
    preparation: dict[str, Any] | None = _json(nullable=True)
    gpu_type: str | None = Field(default=None, index=True)
    gpu_count: int = 0
    cpu_count: int = 0
    memory_bytes: int = Field(default=0, sa_type=BigInteger)
    reserved_cpu_count: int = 0
    reserved_memory_bytes: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (
        Index(
            "nodes_minion_id",
            "minion_id",
            unique=True,
            sqlite_where=text("status != 'archived' AND minion_id != ''"),
            postgresql_where=text("status != 'archived'"),
        ),
        CheckConstraint("reserved_cpu_count >= 0", name="nodes_reserved_cpu"),
        CheckConstraint("reserved_memory_bytes >= 0", name="nodes_reserved_memory"),
        Index("nodes_by_status", "status", "region_id"),
    )


class Lease(LifecycleRow, table=True):
    """A machine that costs money, committed before anything is made. `name` is the machine's."""

    __tablename__ = "leases"
    region_id: str = Field(foreign_key="regions.id", index=True)
    provider_id: str = Field(foreign_key="providers.id", index=True)
    provider_kind: str
    holder_id: str = Field(index=True)
    offers: list[dict[str, Any]] = _json()
    spec: dict[str, Any] = _json()
    price_cap_microcredits_per_hour: int | None = Field(default=None, sa_type=BigInteger)
    deadline: datetime = Field(sa_type=Instant)
    offer: dict[str, Any] | None = _json(nullable=True)
    provider_machine_id: str | None = None
    host: str | None = None
    port: int = 22
    user: str = "root"
    minion_id: str | None = None
    microcredits_per_hour: int | None = Field(default=None, sa_type=BigInteger)
    began_at: datetime | None = Field(default=None, sa_type=Instant)
    ended_at: datetime | None = Field(default=None, sa_type=Instant)
    earlier_microcredits: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (
        Index("leases_name", "name", unique=True),
        Index("leases_by_status", "status"),
    )


class ShortageRow(SQLModel, table=True):
    """What a provider did not have; nobody asks again before `wait_until`."""

    __tablename__ = "shortages"
    provider_id: str = Field(primary_key=True, foreign_key="providers.id")
    scope: str = Field(primary_key=True)
    reason: str = Field(sa_type=Text)
    until: datetime = Field(sa_type=Instant)


class CloudPriceRow(SQLModel, table=True):
    """What a cloud has told of a price at last, as far as it could be.

    counted: `series` (a CPU for an hour), `gpu` (an hour), `disk` (a GB for a month); source: where
    it was read.
    """

    __tablename__ = "cloud_prices"
    provider_kind: str = Field(primary_key=True)
    counted: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    cloud_region: str = Field(primary_key=True)
    on_demand_nanodollars: int = Field(sa_type=BigInteger)
    spot_nanodollars: int = Field(sa_type=BigInteger)
    source: str = Field(sa_type=Text)
    read_at: datetime = Field(sa_type=Instant)


class NodeAnnouncement(SQLModel, table=True):
    """A machine that made itself known, before or after it was added as a node."""

    __tablename__ = "announcements"
    minion_id: str = Field(primary_key=True)
    host_public_key: str = Field(sa_type=Text)
    host: str
    port: int
    user: str = "root"
    first_at: datetime = Field(sa_type=Instant)
    last_at: datetime = Field(sa_type=Instant)


class Upload(SQLModel, table=True):
    """An archive of code or data; equal bytes are stored once, under their SHA-256."""

    __tablename__ = "uploads"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    sha256: str = Field(index=True)
    size_bytes: int = Field(sa_type=BigInteger)
    created_at: datetime = Field(sa_type=Instant)


class Job(LifecycleRow, table=True):
    """A job. `spec` is the validated submission without variables, which are in `sealed`."""

    __tablename__ = "jobs"
    project_id: str = Field(foreign_key="projects.id", index=True)
    type: str
    priority: int = 3
    spec: dict[str, Any] = _json()
    sealed_variables: bytes | None = None
    attempt: int = 1
    workers: list[dict[str, Any]] = _json()
    placement_refusals: list[dict[str, Any]] = _json()
    rates: dict[str, Any] | None = _json(nullable=True)
    gpu_seconds: int = Field(default=0, sa_type=BigInteger)
    charged_microcredits: int = Field(default=0, sa_type=BigInteger)
    output_bytes: int | None = Field(default=None, sa_type=BigInteger)
    __table_args__ = (
        Index("jobs_by_status", "status", "priority", "created_at"),
        Index("jobs_by_account", "account_id", "id"),
    )


class Allocation(SQLModel, table=True):
    """The place of one worker of one attempt of a job on a node; live until released."""

    __tablename__ = "allocations"
    id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="jobs.id", index=True)
    worker: int
    attempt: int
    node_id: str = Field(foreign_key="nodes.id")
    cpu_count: int
    memory_bytes: int = Field(sa_type=BigInteger)
    gpu_indices: list[int] = _json()
    port: int | None = None
    created_at: datetime = Field(sa_type=Instant)
    notified_at: datetime | None = Field(default=None, sa_type=Instant)
    released_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        Index("allocations_of_worker", "job_id", "attempt", "worker", unique=True),
        _index_where("released_at IS NULL", "allocations_live_by_node", "node_id"),
        _index_where(
            "notified_at IS NULL AND released_at IS NULL",
            "allocations_unannounced",
            "created_at",
        ),
        _index_where(
            "released_at IS NULL AND port IS NOT NULL",
            "allocations_port_of_node",
            "node_id",
            "port",
            unique=True,
        ),
    )


class GpuAllocation(SQLModel, table=True):
    """One GPU held by one allocation. Two live rows for one GPU cannot exist."""

    __tablename__ = "gpu_allocations"
    allocation_id: str = Field(primary_key=True, foreign_key="allocations.id")
    gpu_index: int = Field(primary_key=True)
    node_id: str = Field(foreign_key="nodes.id")
    released_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        _index_where(
            "released_at IS NULL",
            "gpu_allocations_live",
            "node_id",
            "gpu_index",
            unique=True,
        ),
    )


class EventRow(SQLModel, table=True):
    """Append-only. `position` orders all events; unique on (resource, sequence, index)."""

    __tablename__ = "events"
    position: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
    )
    id: str = Field(unique=True)
    account_id: str
    resource_id: str
    sequence: int
    index: int = 0
    type: str
    message: str = Field(sa_type=Text)
    details: dict[str, Any] = _json()
    at: datetime = Field(sa_type=Instant)
    __table_args__ = (
        Index("events_of_resource", "resource_id", "sequence", "index", unique=True),
        Index("events_of_account", "account_id", "position"),
    )


class LedgerAccount(SQLModel, table=True):
    """A side of the ledger, such as `account/acc-…/credits` or `platform/usage-fees`."""

    __tablename__ = "ledger_accounts"
    name: str = Field(primary_key=True)
    account_id: str | None = Field(default=None, index=True)
    balance_microcredits: int = Field(default=0, sa_type=BigInteger)


class LedgerTransaction(SQLModel, table=True):
    """A balanced movement; never edited, its key never used twice."""

    __tablename__ = "ledger_transactions"
    id: str = Field(primary_key=True)
    business_key: str = Field(unique=True)
    kind: str
    """`credits`, `usage-fee`, `reversal`, …"""
    account_id: str = Field(foreign_key="accounts.id", index=True)
    job_id: str | None = Field(default=None, index=True)
    description: str = Field(sa_type=Text)
    details: dict[str, Any] = _json()
    at: datetime = Field(sa_type=Instant)


class LedgerPosting(SQLModel, table=True):
    """One leg: the sum of a transaction's legs is zero. Positive: the ledger account gains."""

    __tablename__ = "ledger_postings"
    transaction_id: str = Field(primary_key=True, foreign_key="ledger_transactions.id")
    leg: int = Field(primary_key=True)
    ledger_account: str = Field(foreign_key="ledger_accounts.name", index=True)
    amount_microcredits: int = Field(sa_type=BigInteger)
    balance_after_microcredits: int = Field(sa_type=BigInteger)


class UsageMeter(SQLModel, table=True):
    """How far one worker of one attempt has been billed, in whole measured seconds.

    What it costs and who pays is fixed by the first posting.
    """

    __tablename__ = "usage_meters"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    worker: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    payer_id: str = Field(foreign_key="accounts.id")
    rates: dict[str, Any] = _json()
    microcredits_per_hour: int = Field(default=0, sa_type=BigInteger)
    running: bool = True
    """Counts as what the payer spends by the hour."""
    started_at: datetime = Field(sa_type=Instant)
    posted_s: int = Field(default=0, sa_type=BigInteger)
    posted_microcredits: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (_index_where("running", "usage_meters_running", "payer_id"),)


class OutboxRow(SQLModel, table=True):
    """What the API has promised to ask of a workflow: written with the resource, sent after.

    verb `start` starts `{noun}/{resource_id}`; any other is the name of a signal.
    """

    __tablename__ = "outbox"
    id: str = Field(primary_key=True)
    resource_id: str = Field(index=True)
    verb: str
    argument: dict[str, Any] | None = _json(nullable=True)
    created_at: datetime = Field(sa_type=Instant)
    delivered_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (_index_where("delivered_at IS NULL", "outbox_undelivered", "created_at"),)


class IdempotencyKey(SQLModel, table=True):
    """The first answer to a POST with this key."""

    __tablename__ = "idempotency_keys"
    account_id: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    request_sha256: str
    status_code: int
    body: dict[str, Any] | None = _json(nullable=True)
    created_at: datetime = Field(sa_type=Instant)


class AuditRow(SQLModel, table=True):
    """Who did what, when."""

    __tablename__ = "audit"
    id: str = Field(primary_key=True)
    account_id: str = Field(index=True)
    key_id: str | None = None
    action: str
    resource_id: str | None = None
    at: datetime = Field(sa_type=Instant)
