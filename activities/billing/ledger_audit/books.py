"""Checks of the books: transactions, balances and their sums, whatever they were posted for."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import and_, func, literal, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlmodel import Session

from activities.billing.ledger import FUNDING
from activities.billing.ledger_audit.checks import Check, Difference, streamed
from activities.db.elapsed import day_of
from activities.db.tables import Job, LedgerAccount, LedgerDaySum, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind

_account: Any = LedgerAccount
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction
_day: Any = LedgerDaySum
_job: Any = Job
_amount = _posting.amount_microcredits
_project = func.coalesce(
    _transaction.project_id,
    select(_job.project_id).where(_job.id == _transaction.job_id).scalar_subquery(),
    "",
).label("project_id")


def own_credits() -> Any:
    """The name of the credits of the account that a transaction is of, in a query."""
    return literal("account/") + _transaction.account_id + literal("/credits")


def _zero(session: Session) -> Iterator[Difference]:
    for what, column in (
        ("the sum of all balances", _account.balance_microcredits),
        ("the sum of all postings", _amount),
    ):
        found = int(session.execute(select(func.coalesce(func.sum(column), 0))).scalar_one())
        if found:
            yield Difference("zero", "ledger", what, "0", str(found))


def _balances(session: Session) -> Iterator[Difference]:
    moved = func.coalesce(func.sum(_amount), 0)
    query = (
        select(_account.name, _account.balance_microcredits, moved)
        .outerjoin(LedgerPosting, _posting.ledger_account == _account.name)
        .group_by(_account.name, _account.balance_microcredits)
        .having(moved != _account.balance_microcredits)
    )
    for name, balance, posted in streamed(session, query):
        what = "the balance is the sum of the postings"
        yield Difference("balances", name, what, str(posted), str(balance))


def _transactions(session: Session) -> Iterator[Difference]:
    total, legs = func.coalesce(func.sum(_amount), 0), func.count(_posting.leg)
    smallest = func.min(func.abs(_amount))
    query = (
        select(_transaction.id, total, legs, smallest)
        .outerjoin(LedgerPosting, _posting.transaction_id == _transaction.id)
        .group_by(_transaction.id)
        .having(or_(total != 0, legs < 2, smallest == 0))
    )
    for name, amount, count, _ in streamed(session, query):
        what = "two legs or more that add up to 0, none of them 0"
        yield Difference("transactions", name, what, "0", f"{amount} in {count} legs")
    kinds = [kind.value for kind in TransactionKind]
    unknown = select(_transaction.id, _transaction.kind).where(_transaction.kind.not_in(kinds))
    for name, kind in streamed(session, unknown):
        yield Difference("transactions", name, "the kind is one that is known", "a kind", kind)


def _chains(session: Session) -> Iterator[Difference]:
    """Each balance is reached as often as it is left, but for the first, 0, and the last."""
    after = _posting.balance_after_microcredits
    name, present = _account.name, _account.balance_microcredits
    steps = union_all(
        select(_posting.ledger_account, after.label("balance"), literal(1).label("step"),
               _posting.transaction_id),
        select(_posting.ledger_account, after - _amount, literal(-1), _posting.transaction_id),
        select(name, literal(0), literal(1), literal(None)),
        select(name, present, literal(-1), literal(None)),
    ).subquery("steps")  # fmt: skip
    surplus = func.sum(steps.c.step)
    query = (
        select(steps.c.ledger_account, steps.c.balance, surplus, func.max(steps.c.transaction_id))
        .group_by(steps.c.ledger_account, steps.c.balance)
        .having(surplus != 0)
    )
    for account, balance, count, example in streamed(session, query):
        how = "left by no posting" if count > 0 else "reached by no posting"
        what = f"balances after postings follow each other on {account}"
        found = f"{balance} is {how}"
        yield Difference("chains", example or account, what, "a chain", found)


def _days(session: Session) -> Iterator[Difference]:
    """The sums of days by ledger account and kind are those of the postings of these days."""
    midnight = day_of(_transaction.at)
    both = union_all(
        select(
            _posting.ledger_account, midnight.label("day"), _transaction.kind, _project,
            func.coalesce(_transaction.provider_id, "").label("provider_id"),
            func.coalesce(_transaction.region_id, "").label("region_id"),
            _amount.label("amount"), literal(1).label("count"),
        ).join(LedgerTransaction, _transaction.id == _posting.transaction_id),
        select(
            _day.ledger_account, _day.day, _day.kind, _day.project_id, _day.provider_id,
            _day.region_id, -_day.amount_microcredits, -_day.posting_count,
        ),
    ).subquery("both")  # fmt: skip
    amount, count = func.sum(both.c.amount), func.sum(both.c.count)
    keys = [both.c.ledger_account, both.c.day, both.c.kind, both.c.project_id,
            both.c.provider_id, both.c.region_id]  # fmt: skip
    query = select(*keys, amount, count).group_by(*keys).having(or_(amount != 0, count != 0))
    for *key, missing, postings in streamed(session, query):
        subject = " ".join(part for part in key if part)
        what = "the sums of a day are those of its postings"
        yield Difference("days", subject, what, "the postings", f"{-missing} and {-postings} more")


def _owners(session: Session) -> Iterator[Difference]:
    query = (
        select(_transaction.id, own_credits(), _posting.ledger_account)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(
            _posting.ledger_account.like("account/%/credits"),
            _posting.ledger_account != own_credits(),
        )
    )
    for name, expected, found in streamed(session, query):
        what = "the credits that move are those of the account whose statement shows it"
        yield Difference("owners", name, what, expected, found)


def _credits(session: Session) -> Iterator[Difference]:
    """Credits come from the platform's funding, and nothing else is posted with them."""
    is_right = or_(
        and_(_posting.ledger_account == FUNDING, _amount < 0),
        and_(_posting.ledger_account == own_credits(), _amount > 0),
    )
    query = (
        select(_transaction.id, _posting.ledger_account, _amount)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(_transaction.kind == TransactionKind.CREDITS.value, ~is_right)
    )
    for name, account, amount in streamed(session, query):
        what = "credits move from the funding to the account"
        yield Difference("credits", name, what, "above 0 to the account", f"{amount} on {account}")


def _reversals(session: Session) -> Iterator[Difference]:
    taken_back: Any = aliased(LedgerTransaction)
    odd = or_(
        and_(
            _transaction.kind == TransactionKind.REVERSAL.value,
            or_(taken_back.id.is_(None), taken_back.kind == TransactionKind.REVERSAL.value),
        ),
        and_(
            _transaction.kind != TransactionKind.REVERSAL.value,
            _transaction.reverses_id.is_not(None),
        ),
    )
    query = (
        select(_transaction.id, _transaction.reverses_id)
        .outerjoin(taken_back, taken_back.id == _transaction.reverses_id)
        .where(odd)
    )
    for name, reverses_id in streamed(session, query):
        what = "a reversal takes back one transaction, which is no reversal"
        yield Difference("reversals", name, what, "a transaction", str(reverses_id))
    left = func.sum(_amount)
    opposite = (
        select(_transaction.id, _posting.ledger_account, left)
        .join(
            LedgerPosting,
            or_(
                _posting.transaction_id == _transaction.id,
                _posting.transaction_id == _transaction.reverses_id,
            ),
        )
        .where(_transaction.reverses_id.is_not(None))
        .group_by(_transaction.id, _posting.ledger_account)
        .having(left != 0)
    )
    for name, account, amount in streamed(session, opposite):
        what = f"a reversal and what it takes back add up to 0 on {account}"
        yield Difference("reversals", name, what, "0", str(amount))


_OF_OTHERS = (TransactionKind.EARNING, TransactionKind.PAYOUT, TransactionKind.FEDERATED_FEE)
"""The kinds of what a job moves for others than the payer of its project."""


def _jobs(session: Session) -> Iterator[Difference]:
    kinds = [each.value for each in _OF_OTHERS]
    moved = (
        select(_transaction.job_id, func.sum(_amount).label("amount"))
        .join(
            LedgerPosting,
            and_(
                _posting.transaction_id == _transaction.id,
                _posting.ledger_account == own_credits(),
            ),
        )
        .where(_transaction.job_id.is_not(None), _transaction.kind.not_in(kinds))
        .group_by(_transaction.job_id)
        .subquery("moved")
    )
    charged = -func.coalesce(moved.c.amount, 0)
    query = (
        select(_job.id, charged, _job.charged_microcredits)
        .outerjoin(moved, moved.c.job_id == _job.id)
        .where(_job.charged_microcredits != charged)
    )
    for name, expected, found in streamed(session, query):
        what = "what a job is charged is the sum of its postings"
        yield Difference("jobs", name, what, str(expected), str(found))


BOOKS = (
    Check("zero", "all balances, and all postings, add up to 0", _zero),
    Check("balances", "each balance is the sum of its postings", _balances),
    Check("transactions", "each transaction balances and is of a known kind", _transactions),
    Check("chains", "the balances after postings follow each other", _chains),
    Check("days", "the sums of days are those of their postings", _days),
    Check("owners", "credits move in the statement of their account", _owners),
    Check("credits", "credits come from the funding alone", _credits),
    Check("reversals", "each reversal is the opposite of what it takes back", _reversals),
    Check("jobs", "each job is charged the sum of its postings", _jobs),
)
