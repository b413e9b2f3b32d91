"""The schemas of ledger transactions and statements, in integer microcredits."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from api.schemas.base import Page, RequestBody, ResponseBody, without_control_characters


class Posting(ResponseBody):
    ledger_account: str
    amount_microcredits: int


class Transaction(ResponseBody):
    """A ledger transaction: a movement of money whose postings add up to zero."""

    id: str
    business_key: str
    kind: str
    account_id: str
    project_id: str | None
    provider_id: str | None
    region_id: str | None
    job_id: str | None
    device_id: str | None
    reverses_id: str | None
    """The transaction that this one takes back."""
    description: str
    details: dict[str, JsonValue]
    at: datetime
    postings: list[Posting]


class TransactionPage(Page[Transaction]):
    pass


class Reversal(RequestBody):
    """The reversal of a transaction: another one with the opposite postings."""

    reason: Annotated[
        str, Field(min_length=1, max_length=500), AfterValidator(without_control_characters)
    ]


class StatementLine(ResponseBody):
    transaction_id: str
    at: datetime
    kind: str
    description: str
    job_id: str | None
    amount_microcredits: int
    balance_microcredits: int
    """The balance after this line; of a statement with filters, what its lines add up to."""
    project_id: str | None
    provider_id: str | None
    region_id: str | None
    device_id: str | None


class Statement(ResponseBody):
    """The movements of an account's credits from `begins_at` until before `ends_at`.

    With filters, those that are about these subjects, with the sum of such earlier movements as the
    opening. `opening`, `closing` and `totals` are of the whole period, `lines` of one page.
    """

    account_id: str
    begins_at: datetime
    ends_at: datetime
    opening_microcredits: int
    closing_microcredits: int
    totals_microcredits: dict[str, int]
    """The sums of the lines, by kind of transaction."""
    lines: list[StatementLine]
    """The oldest first."""
    next: str | None = None
    """The `after` of the following page, or null."""


class LedgerDifference(ResponseBody):
    """Something in the ledger that is not as it must be."""

    check: str
    subject: str
    """The transaction, ledger account, job, usage meter or lease that it is about."""
    what: str
    """What must be so."""
    expected: str
    found: str


class LedgerCheck(ResponseBody):
    name: str
    what: str
    difference_count: int


class LedgerAudit(ResponseBody):
    """What an audit of the whole ledger has found; nothing is changed by it."""

    is_clean: bool
    at: datetime
    transaction_count: int
    posting_count: int
    ledger_account_count: int
    meter_count: int
    checks: list[LedgerCheck]
    differences: list[LedgerDifference]
    """At most 1000 of them; `difference_count` of the checks counts all."""
