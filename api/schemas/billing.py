"""The schemas of ledger transactions and statements, in integer microcredits."""

from datetime import datetime

from pydantic import JsonValue

from api.schemas.base import Page, ResponseBody


class Posting(ResponseBody):
    ledger_account: str
    amount_microcredits: int


class Transaction(ResponseBody):
    """A ledger transaction: a movement of money whose postings add up to zero."""

    id: str
    business_key: str
    kind: str
    account_id: str
    job_id: str | None
    description: str
    details: dict[str, JsonValue]
    at: datetime
    postings: list[Posting]


class TransactionPage(Page[Transaction]):
    pass


class StatementLine(ResponseBody):
    transaction_id: str
    at: datetime
    kind: str
    description: str
    job_id: str | None
    amount_microcredits: int
    balance_microcredits: int
    """The balance after this line."""


class Statement(ResponseBody):
    """All movements of an account's credits from `begins_at` until before `ends_at`."""

    account_id: str
    begins_at: datetime
    ends_at: datetime
    opening_microcredits: int
    closing_microcredits: int
    totals_microcredits: dict[str, int]
    """The sums of the lines, by kind of transaction."""
    lines: list[StatementLine]
