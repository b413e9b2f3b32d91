"""What an account was charged, by day, provider, project or region."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import aliased
from sqlmodel import Session

from activities.billing.payers import credits_name
from activities.billing.periods import Period
from activities.db.tables import LedgerDaySum, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import CHARGES, TransactionKind

_day: Any = LedgerDaySum
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction


def charges_by(session: Session, account_id: str, by: str, days: Period) -> dict[str, int]:
    """The microcredits that were charged to an account in whole UTC days; empty: about none.

    by: `day`, `provider`, `project` or `region`. Reversals of charges are taken off, on the day and
    of the subjects of the reversal.
    """
    first, last = (each.date().isoformat() for each in days)
    key = _day.day if by == "day" else getattr(_day, f"{by}_id")
    query = (
        select(key, func.sum(-_day.amount_microcredits))
        .where(
            _day.ledger_account == credits_name(account_id),
            _day.day >= first,
            _day.day < last,
            _day.kind.in_(CHARGES),
        )
        .group_by(key)
    )
    found = {name: int(amount) for name, amount in session.execute(query)}
    for name, amount in _reversed(session, account_id, by, days):
        found[name] = found.get(name, 0) - amount
    return found


def _reversed(session: Session, account_id: str, by: str, days: Period) -> list[tuple[str, int]]:
    """What each reversal of a charge has given back, and which day or subject it is about."""
    charge: Any = aliased(LedgerTransaction)
    query = (
        select(LedgerTransaction, _posting.amount_microcredits)
        .join(charge, charge.id == _transaction.reverses_id)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(
            _transaction.reverses_id.is_not(None),
            _transaction.kind == TransactionKind.REVERSAL,
            _transaction.account_id == account_id,
            _transaction.at >= days[0],
            _transaction.at < days[1],
            _posting.ledger_account == credits_name(account_id),
            charge.kind.in_(CHARGES),
        )
    )
    return [(_name(row, by), int(amount)) for row, amount in session.execute(query)]


def _name(row: LedgerTransaction, by: str) -> str:
    return row.at.date().isoformat() if by == "day" else getattr(row, f"{by}_id") or ""
