"""Transactions, charges and statements; `activities/billing/ledger.py` posts them."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import literal
from sqlmodel import Session, col, func, select

from activities.billing import ledger, payers
from activities.billing.accrued import accrued_of
from activities.billing.payments import (
    LEAST_MICROCREDITS,
    PaymentError,
    buy_credits,
    payments,
)
from activities.db import tables
from activities.db.ids import new_id
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import billing as schemas
from api.schemas import jobs as job_shapes
from api.schemas.accounts import CreditGrant, Purchase
from api.services.accounts import find_account
from workflows.contracts.billing import MICROCREDITS

_TOTAL = select(func.coalesce(func.sum(tables.LedgerPosting.amount_microcredits), 0))


def grant_credits(
    context: ChangeContext, account_id: str, asked: CreditGrant
) -> schemas.Transaction:
    """Post credits to the payer of an account."""
    context.concerned_account_id = account_id
    account = find_account(context.session, account_id)
    payer = find_account(context.session, payers.payer_of(account))
    # Each applied request is a grant of its own; only the idempotency key makes a repeat equal.
    posted = ledger.add_credits(
        context.session, payer, asked.amount_microcredits, new_id("grant"), context.now
    )
    return transaction_response(context.session, posted)


def record_purchase(
    context: ChangeContext, account_id: str, asked: Purchase
) -> schemas.Transaction:
    """Post the credits of a payment to the payer of an account; the same payment again is the same
    transaction.

    Raises: Problem `invalid-request`, when the amount is too small; `conflict`, when the reference
    stands for another payment, or the payment is refused.
    """
    if asked.amount_microcredits < LEAST_MICROCREDITS:
        rule = f"is at least {LEAST_MICROCREDITS // MICROCREDITS} credits ({LEAST_MICROCREDITS})"
        raise invalid(field_error("amount_microcredits", rule, asked.amount_microcredits))
    context.concerned_account_id = account_id
    payer_id = payers.payer_of(find_account(context.session, account_id))
    try:
        payment = payments().received(
            asked.reference, asked.amount_microcredits, context.caller.user_id
        )
        posted = buy_credits(context.session, payer_id, payment, context.now)
    except (ledger.LedgerError, PaymentError) as cause:
        raise Problem("conflict", f"payment {asked.reference}: {cause}") from cause
    return transaction_response(context.session, posted)


def transaction_responses(
    session: Session, rows: Sequence[tables.LedgerTransaction]
) -> list[schemas.Transaction]:
    legs = session.exec(
        select(tables.LedgerPosting)
        .where(col(tables.LedgerPosting.transaction_id).in_([row.id for row in rows]))
        .order_by(col(tables.LedgerPosting.leg))
    )
    postings: dict[str, list[schemas.Posting]] = defaultdict(list)
    for leg in legs:
        postings[leg.transaction_id].append(
            schemas.Posting(
                ledger_account=leg.ledger_account, amount_microcredits=leg.amount_microcredits
            )
        )
    return [schemas.Transaction(**row.model_dump(), postings=postings[row.id]) for row in rows]


def transaction_response(session: Session, row: tables.LedgerTransaction) -> schemas.Transaction:
    return transaction_responses(session, [row])[0]


def charges_of(session: Session, job: tables.Job) -> job_shapes.JobCharges:
    """The charges of a job so far, posting by posting, whichever account paid at that time."""
    payer_id = col(tables.LedgerTransaction.account_id)
    name = literal("account/") + payer_id + literal("/credits")
    rows = session.exec(
        select(tables.LedgerTransaction, tables.LedgerPosting)
        .join(
            tables.LedgerPosting,
            col(tables.LedgerPosting.transaction_id) == col(tables.LedgerTransaction.id),
        )
        .where(
            tables.LedgerTransaction.job_id == job.id,
            col(tables.LedgerPosting.ledger_account) == name,
        )
        .order_by(col(tables.LedgerTransaction.id))
    )
    accrued = accrued_of(session, [job], datetime.now(UTC))[job.id]
    return job_shapes.JobCharges(
        job_id=job.id,
        charged_microcredits=job.charged_microcredits,
        unposted_microcredits=accrued.unposted_microcredits,
        microcredits_per_hour=accrued.microcredits_per_hour,
        gpu_seconds=job.gpu_seconds,
        rates=job.rates,
        charges=[
            job_shapes.JobCharge(
                transaction_id=row.id,
                kind=row.kind,
                description=row.description,
                amount_microcredits=-leg.amount_microcredits,
                at=row.at,
                details=row.details,
            )
            for row, leg in rows
        ],
    )


def statement(
    session: Session, account_id: str, begins_at: datetime, ends_at: datetime
) -> schemas.Statement:
    """The statement of an account's own credits in a period, oldest line first."""
    name, at = payers.credits_name(account_id), col(tables.LedgerTransaction.at)
    opening = int(session.exec(_movements(_TOTAL, name).where(at < begins_at)).one())
    rows = session.exec(
        _movements(select(tables.LedgerTransaction, tables.LedgerPosting), name)
        .where(at >= begins_at, at < ends_at)
        .order_by(at, col(tables.LedgerTransaction.id))
    ).all()
    running = accumulate((leg.amount_microcredits for _, leg in rows), initial=opening)
    balances = list(running)[1:]
    totals: Counter[str] = Counter()
    for row, leg in rows:
        totals[row.kind] += leg.amount_microcredits
    return schemas.Statement(
        account_id=account_id,
        begins_at=begins_at,
        ends_at=ends_at,
        opening_microcredits=opening,
        closing_microcredits=balances[-1] if balances else opening,
        totals_microcredits=dict(totals),
        lines=[
            _line(row, leg, balance) for (row, leg), balance in zip(rows, balances, strict=True)
        ],
    )


def _movements(columns: Any, ledger_account: str) -> Any:
    """The query for these columns of all postings of one ledger account."""
    transaction = col(tables.LedgerPosting.transaction_id) == col(tables.LedgerTransaction.id)
    return (
        columns.select_from(tables.LedgerPosting)
        .join(tables.LedgerTransaction, transaction)
        .where(tables.LedgerPosting.ledger_account == ledger_account)
    )


def _line(
    row: tables.LedgerTransaction, leg: tables.LedgerPosting, balance: int
) -> schemas.StatementLine:
    return schemas.StatementLine(
        transaction_id=row.id,
        at=row.at,
        kind=row.kind,
        description=row.description,
        job_id=row.job_id,
        amount_microcredits=leg.amount_microcredits,
        balance_microcredits=balance,
    )


def as_csv(found: schemas.Statement) -> str:
    """The statement's lines as CSV, with a line of names first."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(schemas.StatementLine.model_fields))
    writer.writeheader()
    for line in found.lines:
        writer.writerow({name: _plain(v) for name, v in line.model_dump(mode="json").items()})
    return out.getvalue()


def _plain(value: object) -> object:
    """The value of a CSV cell, quoted so that no spreadsheet runs it as a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
