"""Tables of accounts, their users, keys, projects and secrets."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where, json_column


class Account(SQLModel, table=True):
    __tablename__ = "accounts"
    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    plan: str = "individual"
    billing_account_id: str | None = Field(default=None, foreign_key="accounts.id")
    is_administrator: bool = False
    wallet_address: str | None = None
    wallets: dict[str, str] | None = json_column(nullable=True)
    """The addresses of the account's wallets, one for each coin; None: it has none."""
    idle_workload: dict[str, Any] | None = json_column(nullable=True)
    """What its nodes run while they are idle, see `storage/idle_workload.py`; None: nothing."""
    idle_revision: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How often the wallets or the idle workload were changed."""
    personal_project_id: str
    job_bytes: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """The `log_bytes` and `state_bytes` of all jobs of the account that are not archived."""
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class User(SQLModel, table=True):
    __tablename__ = "users"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    email: str = Field(unique=True)
    """The proved address; a placeholder until it is proved."""
    claimed_email: str | None = None
    """The address that nobody has proved yet; other users may claim the same."""
    email_verified_at: datetime | None = Field(default=None, sa_type=Instant)
    role: str = "owner"
    """The user's role in this account, see `workflows/rules/accounts/permissions.py`."""
    created_at: datetime = Field(sa_type=Instant)


class AccountMember(SQLModel, table=True):
    """The membership of a user in another account than the user's own, with a role there."""

    __tablename__ = "account_members"
    account_id: str = Field(primary_key=True, foreign_key="accounts.id")
    user_id: str = Field(primary_key=True, foreign_key="users.id", index=True)
    role: str
    created_at: datetime = Field(sa_type=Instant)


class Invitation(SQLModel, table=True):
    """An invitation to a project, with permissions there, or to its account, with a role there.

    The row holds only the SHA-256 of its one-time token.
    """

    __tablename__ = "invitations"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    project_id: str | None = Field(default=None, foreign_key="projects.id", index=True)
    """The project; None: the invitation is to the account."""
    permissions: dict[str, str] | None = json_column(nullable=True)
    role: str | None = None
    email: str
    secret_sha256: str = Field(unique=True)
    inviter_user_id: str = Field(foreign_key="users.id")
    created_at: datetime = Field(sa_type=Instant)
    expires_at: datetime = Field(sa_type=Instant)
    accepted_at: datetime | None = Field(default=None, sa_type=Instant)
    accepted_by: str | None = Field(default=None, foreign_key="users.id")
    withdrawn_at: datetime | None = Field(default=None, sa_type=Instant)


class ApiKey(SQLModel, table=True):
    """An API key; the row holds only its SHA-256."""

    __tablename__ = "api_keys"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    user_id: str = Field(foreign_key="users.id", index=True)
    parent_key_id: str | None = Field(default=None, index=True)
    """The key with which this one was made, and with which it is revoked."""
    name: str
    secret_sha256: str = Field(unique=True)
    scopes: list[str] = json_column()
    requests_per_minute: int | None = None
    """The key's own rate limit, beside those of all keys and of the account; None: it has none."""
    expires_at: datetime | None = Field(default=None, sa_type=Instant)
    revoked_at: datetime | None = Field(default=None, sa_type=Instant)
    last_used_at: datetime | None = Field(default=None, sa_type=Instant)
    created_at: datetime = Field(sa_type=Instant)
    __table_args__ = (
        index_where("revoked_at IS NULL", "api_keys_unrevoked", "account_id", "expires_at"),
    )


class Project(SQLModel, table=True):
    __tablename__ = "projects"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    name: str
    personal: bool = False
    use_only_owned_resources: bool = False
    on_quota_exhausted: str = "reroute"
    federated_egress: list[str] | None = json_column(nullable=True)
    """The addresses that federated jobs may reach, `host:port` or `CIDR:port`; None: none."""
    federated_logs: str = Field(default="none", sa_column_kwargs={"server_default": "none"})
    """What of the logs of federated jobs is shown: `none`, `exit_only` or `all`."""
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class ProjectMember(SQLModel, table=True):
    """The membership of a user of another account in a project.

    permissions: noun to `read` or `all`.
    """

    __tablename__ = "project_members"
    project_id: str = Field(primary_key=True, foreign_key="projects.id")
    user_id: str = Field(primary_key=True, foreign_key="users.id", index=True)
    permissions: dict[str, str] = json_column()
    created_at: datetime = Field(sa_type=Instant)


class StoredSecret(SQLModel, table=True):
    """A sealed value (AES-GCM), named by its path under `store://`."""

    __tablename__ = "stored_secrets"
    name: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    sealed: bytes
    updated_at: datetime = Field(sa_type=Instant)


class ThirdPartyKey(SQLModel, table=True):
    """A key of another service, which a project has at most once for each type; sealed."""

    __tablename__ = "third_party_keys"
    project_id: str = Field(primary_key=True, foreign_key="projects.id")
    type: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    sealed: bytes
    hint: str | None = None
    """What may be shown of the key, such as the end of its id."""
    set_by: str
    """The id of the user who has set the key."""
    updated_at: datetime = Field(sa_type=Instant)
