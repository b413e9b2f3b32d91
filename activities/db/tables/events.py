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
    """An audit entry: which API key did what, to which resource, at which instant."""

    __tablename__ = "audit"
    id: str = Field(primary_key=True)
    account_id: str = Field(index=True)
    key_id: str | None = None
    action: str
    resource_id: str | None = None
    at: datetime = Field(sa_type=Instant)
