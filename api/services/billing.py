"""Transactions, charges and statements; `activities/billing/ledger.py` posts them."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice

from sqlalchemy import literal
from sqlmodel import Session, col, select

from activities.billing import ledger, payers, reversals
from activities.billing.accrued import accrued_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payments import (
    LEAST_MICROCREDITS,
    PaymentError,
    buy_credits,
    payments,
)
from activities.billing.periods import Period
from activities.billing.runway import recompute_runway
from activities.billing.statements import (
    AT_ONCE,
    Movement,
    Movements,
    Position,
    Subjects,
    balance_of,
    every_movement,
    moved_between,
)
from activities.db import tables
from activities.db.ids import new_id
from api.changes import ChangeContext
from api.pagination import PageQuery, unknown_cursor, write_cursor
from api.problems import Problem, field_error, invalid, missing
from api.schemas import billing as schemas
from api.schemas import jobs as job_shapes
from api.schemas.accounts import CreditGrant, Purchase
from api.schemas.base import ResponseBody
from api.schemas.billing import Reversal
from api.services.accounts import find_account
from workflows.contracts.billing import MICROCREDITS, TransactionKind


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
    _recompute(context, posted)
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
    _recompute(context, posted)
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
    """The charges of a job so far, posting by posting, whichever account paid at that time.

    The fee of a federated job is none of them: its creator pays it, and its statement has it.
    """
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
            tables.LedgerTransaction.kind != TransactionKind.FEDERATED_FEE.value,
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


def reverse(context: ChangeContext, transaction_id: str, asked: Reversal) -> schemas.Transaction:
    """Post the reversal of a transaction of any account; asked again, the same answer.

    Raises: Problem `not-found`; `conflict`, when it is a reversal itself.
    """
    row = context.session.get(tables.LedgerTransaction, transaction_id)
    if row is None:
        raise missing("transaction", transaction_id)
    context.concerned_account_id = row.account_id
    try:
        posted = reversals.reverse(context.session, row, asked.reason, context.now)
    except ledger.LedgerError as refused:
        raise Problem("conflict", f"transaction {refused}") from refused
    _recompute(context, posted)
    return transaction_response(context.session, posted)


def _recompute(context: ChangeContext, posted: tables.LedgerTransaction) -> None:
    """Recompute the runway of the account that a transaction is of, by what it has moved."""
    payer_id = posted.account_id
    moved = select(tables.LedgerPosting.amount_microcredits).where(
        tables.LedgerPosting.transaction_id == posted.id,
        tables.LedgerPosting.ledger_account == payers.credits_name(payer_id),
    )
    amount = sum(context.session.exec(moved))
    context.requests += recompute_runway(context.session, payer_id, moved=amount)


def transaction(session: Session, account_id: str, transaction_id: str) -> schemas.Transaction:
    """A transaction of an account. Raises: Problem `not-found`."""
    row = session.get(tables.LedgerTransaction, transaction_id)
    if row is None or row.account_id != account_id:
        raise missing("transaction", transaction_id)
    return transaction_response(session, row)


def audit_ledger(session: Session, at: datetime) -> schemas.LedgerAudit:
    """Compute all of the ledger anew, in batches; the time that it takes grows with the ledger."""
    found = audit(session)
    return schemas.LedgerAudit(
        is_clean=found.is_clean,
        at=at,
        transaction_count=found.transaction_count,
        posting_count=found.posting_count,
        ledger_account_count=found.ledger_account_count,
        meter_count=found.meter_count,
        checks=[schemas.LedgerCheck(**asdict(each)) for each in found.checks],
        differences=[schemas.LedgerDifference(**asdict(each)) for each in found.differences],
    )


def statement(movements: Movements, period: Period, query: PageQuery) -> schemas.Statement:
    """One page of the statement of an account's own credits in a period, oldest line first."""
    after = None if query.before is None else _position(query.before)
    opening, until = movements.moved_before(period[0]), movements.moved_before(period[1])
    balance = balance_of(opening) if after is None else movements.balance_before(period[0], after)
    found = movements.page(period, balance, after, query.limit + 1)
    shown, more = found[: query.limit], len(found) > query.limit
    return schemas.Statement(
        account_id=movements.account_id,
        begins_at=period[0],
        ends_at=period[1],
        opening_microcredits=balance_of(opening),
        closing_microcredits=balance_of(until),
        totals_microcredits=moved_between(opening, until),
        lines=[_line(each) for each in shown],
        next=_cursor(shown[-1]) if more else None,
    )


def statement_csv(account_id: str, about: Subjects, period: Period) -> Iterator[str]:
    """The whole statement as CSV, with a line of names first, some lines at a time."""
    names = list(schemas.StatementLine.model_fields)
    lines = map(_line, every_movement(account_id, about, period))
    return csv_text(names, lines)


def csv_text(names: Sequence[str], rows: Iterable[ResponseBody]) -> Iterator[str]:
    """The rows as CSV, with a line of names first, `AT_ONCE` rows at a time."""
    yield _csv_lines([dict(zip(names, names, strict=True))], names)
    remaining = iter(rows)
    while some := list(islice(remaining, AT_ONCE)):
        yield _csv_lines([row.model_dump(mode="json", include=set(names)) for row in some], names)


def _csv_lines(rows: Iterable[Mapping[str, object]], names: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=names)
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cursor(movement: Movement) -> str:
    at, transaction_id = movement.position.at, movement.position.transaction_id
    return write_cursor(f"{at.isoformat()} {transaction_id}")


def _position(text: str) -> Position:
    at, _, transaction_id = text.partition(" ")
    try:
        instant = datetime.fromisoformat(at)
    except ValueError:
        raise unknown_cursor(text) from None
    if instant.tzinfo is None:
        raise unknown_cursor(text)
    return Position(instant, transaction_id)


def _line(movement: Movement) -> schemas.StatementLine:
    row = movement.transaction
    return schemas.StatementLine(
        transaction_id=row.id,
        at=row.at,
        kind=row.kind,
        description=row.description,
        job_id=row.job_id,
        amount_microcredits=movement.microcredits,
        balance_microcredits=movement.balance_microcredits,
        project_id=movement.project_id,
        provider_id=row.provider_id,
        region_id=row.region_id,
        device_id=row.device_id,
    )


def _plain(value: object) -> object:
    """The value of a CSV cell, quoted so that no spreadsheet runs it as a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
