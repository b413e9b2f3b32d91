"""Tables of nodes, and of the join tokens by which machines announce themselves."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Index,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import RemovableRow, index_where, json_column


class Node(RemovableRow, table=True):
    __tablename__ = "nodes"
    region_id: str = Field(foreign_key="regions.id", index=True)
    minion_id: str
    """The SSH host key fingerprint; empty until the leased machine of the node has been created."""
    type: str = "permanent"
    services: list[str] = json_column()
    machine: dict[str, Any] | None = json_column(nullable=True)
    """The claim of the node's leased machine, a `MachineClaim`; None: an owner's machine."""
    upnp: bool = True
    mining: bool = False
    """Whether the account's idle workload runs on the node while it is active and idle."""
    idle_workload: dict[str, Any] | None = json_column(nullable=True)
    """What the node says of its idle workload, `IdleWorkloadFacts`; None: it never had one."""
    host: str | None = None
    port: int = 22
    user: str = "root"
    hardware: dict[str, Any] | None = json_column(nullable=True)
    requirements: list[dict[str, Any]] = json_column()
    preparation: dict[str, Any] | None = json_column(nullable=True)
    gpu_type: str | None = Field(default=None, index=True)
    gpu_count: int = 0
    cpu_count: int = 0
    memory_bytes: int = Field(default=0, sa_type=BigInteger)
    fills_from: str | None = None
    """The storage node whose place this one takes: while that one is active it is the region's
    storage node, and this one is filled from it; None: it takes nobody's place."""
    wanted_status: str | None = None
    """The status that a person wants, `active` or `maintenance`; None: nobody has asked."""
    wanted_revision: int = 0
    """How often a wanted status was requested."""
    seen_revision: int = 0
    """The revision that the lifecycle has followed; it leaves a status by itself afterwards."""
    reserved_cpu_count: int = 0
    reserved_memory_bytes: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (
        index_where(
            "status != 'archived' AND minion_id != ''",
            "nodes_minion_id",
            "account_id",
            "minion_id",
            unique=True,
        ),
        CheckConstraint("reserved_cpu_count >= 0", name="nodes_reserved_cpu"),
        CheckConstraint("reserved_memory_bytes >= 0", name="nodes_reserved_memory"),
        Index("nodes_by_status", "status", "region_id"),
    )


class JoinToken(SQLModel, table=True):
    """A join token of a region, of which the row holds the SHA-256, and its announcement.

    The first machine that announces itself with the token binds the token; from then on that
    machine alone announces itself with the token, for as long as it is not removed.
    """

    __tablename__ = "join_tokens"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    region_id: str = Field(foreign_key="regions.id")
    parent_key_id: str | None = Field(default=None, index=True)
    """The API key with which the token was made, and with which it is revoked until it is bound."""
    secret_sha256: str = Field(unique=True)
    created_at: datetime = Field(sa_type=Instant)
    expires_at: datetime = Field(sa_type=Instant)
    """Until when the token can be bound."""
    minion_id: str | None = None
    """The machine that has announced itself with the token; None: the token is not bound."""
    host: str | None = None
    port: int = 22
    user: str = "root"
    first_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the machine announced itself first; None: it has not."""
    last_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        Index("join_tokens_by_machine", "region_id", "minion_id"),
        index_where("minion_id IS NULL", "join_tokens_unbound", "account_id"),
    )


class NodeAnnouncement(SQLModel, table=True):
    """The announcement of a machine without a join token.

    Only the release before writes and reads these rows, while it runs beside this one.
    """

    __tablename__ = "announcements"
    minion_id: str = Field(primary_key=True)
    host_public_key: str = Field(sa_type=Text)
    host: str
    port: int
    user: str = "root"
    first_at: datetime = Field(sa_type=Instant)
    last_at: datetime = Field(sa_type=Instant)
