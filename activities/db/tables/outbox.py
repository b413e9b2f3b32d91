"""Tables of the outbox and of the answers under idempotency keys."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where, json_column


class OutboxRow(SQLModel, table=True):
    """A start or signal of a workflow, written with the change that asks for it and relayed after.

    verb: `start` starts `{noun}/{resource_id}`; any other verb is the name of a signal.
    """

    __tablename__ = "outbox"
    id: str = Field(primary_key=True)
    resource_id: str = Field(index=True)
    verb: str
    argument: dict[str, Any] | None = json_column(nullable=True)
    created_at: datetime = Field(sa_type=Instant)
    delivered_at: datetime | None = Field(default=None, sa_type=Instant)
    attempts: int = 0
    """How often the relay has failed to deliver the row."""
    next_attempt_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the relay tries the row next; None: at once."""
    refused_since: datetime | None = Field(default=None, sa_type=Instant)
    """Since when every attempt was refused; None: the last one met no answer."""
    parked_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the relay gave up, which a person reads in the resource's events."""
    __table_args__ = (
        index_where(
            "delivered_at IS NULL AND parked_at IS NULL", "outbox_undelivered", "next_attempt_at"
        ),
        index_where("delivered_at IS NOT NULL", "outbox_delivered", "delivered_at"),
    )


class IdempotencyKey(SQLModel, table=True):
    """The first answer to a POST with this key."""

    __tablename__ = "idempotency_keys"
    account_id: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    request_sha256: str
    status_code: int
    body: dict[str, Any] | None = json_column(nullable=True)
    key_id: str | None = None
    """The API key that got the answer; None: an earlier release has not said it."""
    created_at: datetime = Field(sa_type=Instant)
    __table_args__ = (Index("idempotency_keys_by_age", "created_at"),)
