"""Transactions and statements."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Response
from pydantic import AwareDatetime
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.pagination import Paging, page
from api.problems import field_error, invalid
from api.schemas.billing import Statement, TransactionPage
from api.services import billing
from workflows.contracts.billing import TransactionKind

router = APIRouter(prefix="/v1", tags=["billing"])
Reader = Annotated[Caller, Depends(Needs("billing:read"))]
LONGEST = timedelta(days=366)
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}


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


@router.get("/statement", operation_id="get_statement", response_model=Statement, responses=_CSV)
def get_statement(
    caller: Reader,
    begins_at: AwareDatetime | None = None,
    ends_at: AwareDatetime | None = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Any:
    """Movements and balances of at most 366 days, by default the last 30; CSV if accepted.

    Raises: Problem `invalid-request`, when the period is empty or longer than 366 days.
    """
    until = ends_at or datetime.now(UTC) + timedelta(seconds=1)
    since = begins_at or until - timedelta(days=30)
    if not timedelta(0) < until - since <= LONGEST:
        raise invalid(
            field_error("begins_at", "is at most 366 days before ends_at", since.isoformat())
        )
    with database().read() as session:
        found = billing.statement(session, caller.account_id, since, until)
    if accept and "text/csv" in accept:
        return Response(billing.as_csv(found), media_type="text/csv")
    return found
