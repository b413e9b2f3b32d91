"""Append-only tables: events of resources, and the audit entries of changes."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import json_column


class EventRow(SQLModel, table=True):
    """An event; `position` orders all events, and (resource, sequence, index) is unique."""

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
    details: dict[str, Any] = json_column()
    at: datetime = Field(sa_type=Instant)
    __table_args__ = (
        Index("events_of_resource", "resource_id", "sequence", "index", unique=True),
        Index("events_of_account", "account_id", "position"),
    )


class AuditRow(SQLModel, table=True):
    """An audit entry: which API key did what, to which resource, at which instant.

    The entries of an account are numbered and chained by their hashes; what a release before the
    chain has written has no number and no hash. Only `activities/accounts/audit.py` adds entries.
    """

    __tablename__ = "audit"
    id: str = Field(primary_key=True)
    account_id: str = Field(index=True)
    """The account that the entry concerns."""
    key_id: str | None = None
    action: str
    resource_id: str | None = None
    at: datetime = Field(sa_type=Instant)
    actor_account_id: str | None = Field(default=None, index=True)
    """The account of the key, where it is another one than the account that the entry concerns."""
    acting_as: str | None = None
    """`administrator` or `member`, where the key is of another account."""
    address: str | None = None
    """The address of the client."""
    outcome: str | None = None
    """The code of the refusal; None: it was done."""
    count: int | None = None
    """How many equal requests of a minute the entry stands for; None: one."""
    number: int | None = None
    previous_sha256: str | None = None
    sha256: str | None = None
    __table_args__ = (Index("audit_chain", "account_id", "number", unique=True),)


class AuditChain(SQLModel, table=True):
    """The ends of an account's chain of audit entries.

    number and sha256: of the newest entry. removed_number and removed_sha256: of the newest entry
    that housekeeping has removed.
    """

    __tablename__ = "audit_chains"
    account_id: str = Field(primary_key=True)
    number: int
    sha256: str
    removed_number: int = 0
    removed_sha256: str = ""
