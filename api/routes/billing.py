"""Transactions, their reversals, and statements."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from sqlmodel import col, select

from activities.billing.periods import Period
from activities.billing.statements import Movements, Subjects
from activities.db import tables
from activities.db.session import database
from activities.placement.wake import wake_placement
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import PageQuery, Paging, page, read_cursor
from api.problems import field_error, invalid
from api.schemas.billing import LedgerAudit, Reversal, Statement, Transaction, TransactionPage
from api.services import billing
from workflows.contracts.billing import TransactionKind
from workflows.rules.accounts.permissions import Verb

router = APIRouter(prefix="/v1", tags=["billing"])
Reader = Annotated[Caller, Depends(Needs("billing:read"))]
Administrator = Annotated[Caller, Depends(Needs("billing:write", Verb.VERIFY))]
Administration = Annotated[Change, changing("billing:write", Verb.REVERSE)]
LONGEST = timedelta(days=366)
CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}


_PERIOD_RULE = "is before ends_at, by at most 366 days"


def _period(begins_at: AwareDatetime | None = None, ends_at: AwareDatetime | None = None) -> Period:
    """The period that is asked for. Raises: Problem `invalid-request`."""
    until = ends_at or datetime.now(UTC) + timedelta(seconds=1)
    since = begins_at or until - timedelta(days=30)
    if not timedelta(0) < until - since <= LONGEST:
        raise invalid(field_error("begins_at", _PERIOD_RULE, since.isoformat()))
    return since, until


def _subjects(
    project_id: str | None = None,
    provider_id: str | None = None,
    region_id: str | None = None,
    job_id: str | None = None,
    device_id: str | None = None,
) -> Subjects:
    return Subjects(project_id, provider_id, region_id, job_id, device_id)


def _statement_page(
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
    after: Annotated[str | None, Query(max_length=200, description="`next` of a page")] = None,
) -> PageQuery:
    return PageQuery(limit=limit, before=None if after is None else read_cursor(after))


Asked = Annotated[Period, Depends(_period)]
About = Annotated[Subjects, Depends(_subjects)]
StatementPaging = Annotated[PageQuery, Depends(_statement_page)]


@router.get("/transactions", operation_id="list_transactions")
def list_transactions(
    caller: Reader,
    paging: Paging,
    job_id: str | None = None,
    kind: TransactionKind | None = None,
) -> TransactionPage:
    """Ledger transactions of the account, newest first."""
    rows = select(tables.LedgerTransaction).where(
        tables.LedgerTransaction.account_id == caller.account_id
    )
    if job_id is not None:
        rows = rows.where(tables.LedgerTransaction.job_id == job_id)
    if kind is not None:
        rows = rows.where(tables.LedgerTransaction.kind == kind)
    with database().read() as session:
        view = (
            col(tables.LedgerTransaction.id),
            lambda rows: billing.transaction_responses(session, rows),
        )
        return page(session, TransactionPage, rows, paging, view)


@router.get("/transactions/{transaction_id}", operation_id="get_transaction")
def get_transaction(transaction_id: str, caller: Reader) -> Transaction:
    """One ledger transaction of the account, with its postings."""
    with database().read() as session:
        return billing.transaction(session, caller.account_id, transaction_id)


@router.post(
    "/transactions/{transaction_id}/reversal", status_code=201, operation_id="reverse_transaction"
)
async def reverse_transaction(
    transaction_id: str, asked: Reversal, change: Administration
) -> Transaction:
    """Take a transaction back by a new one with the opposite postings; once, however often asked.

    Raises: Problem `conflict`, when it is a reversal itself.
    """
    posted = await change.apply(
        Transaction, lambda context: billing.reverse(context, transaction_id, asked)
    )
    wake_placement()  # Jobs may have waited for these credits.
    return posted


@router.get("/statement", operation_id="get_statement", response_model=Statement, responses=CSV)
def get_statement(
    caller: Reader,
    period: Asked,
    about: About,
    paging: StatementPaging,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Any:
    """Movements and balances of at most 366 days, by default the last 30; CSV if accepted.

    CSV is of the whole period, without pages.
    Raises: Problem `invalid-request`, when the period is empty or longer than 366 days.
    """
    if accept and "text/csv" in accept:
        lines = billing.statement_csv(caller.account_id, about, period)
        return StreamingResponse(lines, media_type="text/csv")
    with database().read() as session:
        movements = Movements(session, caller.account_id, about)
        return billing.statement(movements, period, paging)


@router.post("/admin/ledger-audit", operation_id="audit_ledger")
def audit_ledger(_caller: Administrator) -> LedgerAudit:
    """Compute all charges and balances anew and report each difference; it changes nothing.

    It takes about a minute for a million transactions.
    """
    with database().read() as session:
        return billing.audit_ledger(session, datetime.now(UTC))
