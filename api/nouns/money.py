"""Transactions, charges and statements; all that moves is posted through `activities/ledger.py`."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, func, select

from activities import accounts, ledger
from activities.db import tables
from activities.db.ids import new_id
from api.changing import Step
from api.models import jobs as job_shapes
from api.models import money as shapes
from api.models.accounts import CreditGrant
from api.nouns.accounts import find_account


def grant_credits(step: Step, account_id: str, asked: CreditGrant) -> shapes.Transaction:
    """Post credits to the account that pays for this one."""
    account = find_account(step.session, account_id)
    payer = find_account(step.session, accounts.payer_of(account))
    # One grant for each applied request: the idempotency key is what makes a second one the same.
    posted = ledger.add_credits(
        step.session, payer, asked.amount_microcredits, new_id("grant"), step.now
    )
    return shown_transaction(step.session, posted)


def shown_transactions(
    session: Session, rows: Sequence[tables.LedgerTransaction]
) -> list[shapes.Transaction]:
    legs = session.exec(
        select(tables.LedgerPosting)
        .where(col(tables.LedgerPosting.transaction_id).in_([row.id for row in rows]))
        .order_by(col(tables.LedgerPosting.leg))
    )
    postings: dict[str, list[shapes.Posting]] = defaultdict(list)
    for leg in legs:
        postings[leg.transaction_id].append(
            shapes.Posting(
                ledger_account=leg.ledger_account, amount_microcredits=leg.amount_microcredits
            )
        )
    return [shapes.Transaction(**row.model_dump(), postings=postings[row.id]) for row in rows]


def shown_transaction(session: Session, row: tables.LedgerTransaction) -> shapes.Transaction:
    return shown_transactions(session, [row])[0]


def charges_of(session: Session, job: tables.Job) -> job_shapes.JobCharges:
    """What a job has cost so far, posting by posting."""
    name = credits_of_payer(session, job.account_id)
    rows = session.exec(
        select(tables.LedgerTransaction, tables.LedgerPosting)
        .join(
            tables.LedgerPosting,
            col(tables.LedgerPosting.transaction_id) == col(tables.LedgerTransaction.id),
        )
        .where(
            tables.LedgerTransaction.job_id == job.id,
            tables.LedgerPosting.ledger_account == name,
        )
        .order_by(col(tables.LedgerTransaction.id))
    )
    return job_shapes.JobCharges(
        job_id=job.id,
        charged_microcredits=job.charged_microcredits,
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


def credits_of_payer(session: Session, account_id: str) -> str:
    """The ledger account that pays for an account."""
    account = session.get(tables.Account, account_id)
    return accounts.credits_name(accounts.payer_of(account) if account else account_id)


def statement(
    session: Session, account_id: str, begins_at: datetime, ends_at: datetime
) -> shapes.Statement:
    """All movements of an account's own credits in a period, oldest first."""
    name = accounts.credits_name(account_id)
    transaction, posting = tables.LedgerTransaction, tables.LedgerPosting
    joined = col(posting.transaction_id) == col(transaction.id)
    opening = session.exec(
        select(func.coalesce(func.sum(posting.amount_microcredits), 0))
        .join(transaction, joined)
        .where(posting.ledger_account == name, col(transaction.at) < begins_at)
    ).one()
    rows = session.exec(
        select(transaction, posting)
        .join(transaction, joined)
        .where(
            posting.ledger_account == name,
            col(transaction.at) >= begins_at,
            col(transaction.at) < ends_at,
        )
        .order_by(col(transaction.at), col(transaction.id))
    )
    lines, balance = [], int(opening)
    totals: Counter[str] = Counter()
    for row, leg in rows:
        balance += leg.amount_microcredits
        totals[row.kind] += leg.amount_microcredits
        lines.append(
            shapes.StatementLine(
                transaction_id=row.id,
                at=row.at,
                kind=row.kind,
                description=row.description,
                job_id=row.job_id,
                amount_microcredits=leg.amount_microcredits,
                balance_microcredits=balance,
            )
        )
    return shapes.Statement(
        account_id=account_id,
        begins_at=begins_at,
        ends_at=ends_at,
        opening_microcredits=int(opening),
        closing_microcredits=balance,
        totals_microcredits=dict(totals),
        lines=lines,
    )


def as_csv(found: shapes.Statement) -> str:
    """The statement's lines for a spreadsheet, with a line of names first."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(shapes.StatementLine.model_fields))
    writer.writeheader()
    for line in found.lines:
        writer.writerow({name: _plain(v) for name, v in line.model_dump(mode="json").items()})
    return out.getvalue()


def _plain(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
