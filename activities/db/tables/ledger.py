"""Tables of the ledger: ledger accounts, balanced transactions, usage meters."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Index,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where, json_column


class LedgerAccount(SQLModel, table=True):
    """A ledger account, such as `account/acc-…/credits` or `platform/usage-fees`."""

    __tablename__ = "ledger_accounts"
    name: str = Field(primary_key=True)
    account_id: str | None = Field(default=None, index=True)
    balance_microcredits: int = Field(default=0, sa_type=BigInteger)


class LedgerTransaction(SQLModel, table=True):
    """A balanced ledger transaction; never edited, with a unique business key."""

    __tablename__ = "ledger_transactions"
    id: str = Field(primary_key=True)
    business_key: str = Field(unique=True)
    kind: str
    """One of `TransactionKind`."""
    account_id: str = Field(foreign_key="accounts.id")
    """The account whose statement shows it: every account whose credits move has one of its own."""
    project_id: str | None = None
    """None for transactions of before 0039, too, whose job says it."""
    provider_id: str | None = None
    region_id: str | None = None
    job_id: str | None = Field(default=None, index=True)
    device_id: str | None = None
    reverses_id: str | None = None
    """The transaction that this one takes back; each can be taken back once."""
    description: str = Field(sa_type=Text)
    details: dict[str, Any] = json_column()
    at: datetime = Field(sa_type=Instant)
    __table_args__ = (
        Index("ledger_transactions_by_instant", "account_id", "at", "id"),
        Index("ledger_transactions_reversed", "reverses_id", unique=True),
        Index("ledger_transactions_of_device", "device_id"),
    )


class LedgerPosting(SQLModel, table=True):
    """One leg of a ledger transaction, whose legs add up to zero; positive: the account gains."""

    __tablename__ = "ledger_postings"
    transaction_id: str = Field(primary_key=True, foreign_key="ledger_transactions.id")
    leg: int = Field(primary_key=True)
    ledger_account: str = Field(foreign_key="ledger_accounts.name", index=True)
    amount_microcredits: int = Field(sa_type=BigInteger)
    balance_after_microcredits: int = Field(sa_type=BigInteger)


class LedgerDaySum(SQLModel, table=True):
    """What a UTC day has moved on a ledger account, by kind and subject; empty: without one.

    A trigger of the database adds each posting, to the day of its transaction's `at`.
    """

    __tablename__ = "ledger_day_sums"
    ledger_account: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    """As `2026-03-01`."""
    kind: str = Field(primary_key=True)
    project_id: str = Field(primary_key=True)
    provider_id: str = Field(primary_key=True)
    region_id: str = Field(primary_key=True)
    amount_microcredits: int = Field(sa_type=BigInteger)
    posting_count: int = Field(sa_type=BigInteger)


class UsageMeter(SQLModel, table=True):
    """The usage meter of one run: up to which measured second its usage is posted.

    The first posting fixes the usage rates and the payer.
    """

    __tablename__ = "usage_meters"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    worker: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    payer_id: str = Field(foreign_key="accounts.id")
    rates: dict[str, Any] = json_column()
    microcredits_per_hour: int = Field(default=0, sa_type=BigInteger)
    federated_payer_id: str | None = Field(default=None, foreign_key="accounts.id")
    """Who pays the federated fee: the creator of the federated job, or that account's billing
    account; None: there is no fee."""
    federated_microcredits_per_hour: int = Field(
        default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"}
    )
    """The federated fee of an hour of the run; no part of `microcredits_per_hour`."""
    federated_microcredits: int = Field(
        default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"}
    )
    """The federated fee that is posted, up to `posted_s`."""
    running: bool = True
    """Whether the run counts in the burn rate of the payer."""
    credits_used_up_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the job of a guest was asked to end, because the credits of its payer were used up."""
    started_at: datetime = Field(sa_type=Instant)
    posted_s: int = Field(default=0, sa_type=BigInteger)
    posted_microcredits: int = Field(default=0, sa_type=BigInteger)
    measured_s: int | None = Field(default=None, sa_type=BigInteger)
    """The most seconds that the supervisor has measured, also those that are not charged; None: an
    earlier release has posted the run, or nothing is measured yet."""
    measured_at: datetime | None = Field(default=None, sa_type=Instant)
    """When `measured_s` was recorded, by the control plane's clock."""
    node_started_at: datetime | None = Field(default=None, sa_type=Instant)
    """The start of the run by its node's wall clock, as the node has said it first."""
    node_ended_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        Index("usage_meters_of_payer", "running", "payer_id"),
        index_where(
            "federated_payer_id IS NOT NULL",
            "usage_meters_federated",
            "running",
            "federated_payer_id",
        ),
    )
