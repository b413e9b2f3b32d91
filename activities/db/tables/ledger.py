"""Tables of the ledger: accounts, balanced transactions, meters of usage."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where, json_column


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
    details: dict[str, Any] = json_column()
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
    rates: dict[str, Any] = json_column()
    microcredits_per_hour: int = Field(default=0, sa_type=BigInteger)
    running: bool = True
    """Counts as what the payer spends by the hour."""
    started_at: datetime = Field(sa_type=Instant)
    posted_s: int = Field(default=0, sa_type=BigInteger)
    posted_microcredits: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (index_where("running", "usage_meters_running", "payer_id"),)
