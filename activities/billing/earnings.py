"""What an account has earned with public capacity, by day, provider or region."""

from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import aliased
from sqlmodel import Session

from activities.billing.periods import Period
from activities.db.elapsed import day_of
from activities.db.tables import LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind

_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction


def earned_by(session: Session, account_id: str, by: str, days: Period) -> dict[str, int]:
    """The microcredits that an account has earned in whole UTC days; empty: about none.

    by: `day`, `provider`, `project` or `region`. Guests are of no project of the account. Reversals
    of earnings are taken off, on the day of the reversal.
    """
    key = {
        "day": day_of(_transaction.at),
        "provider": func.coalesce(_transaction.provider_id, ""),
        "region": func.coalesce(_transaction.region_id, ""),
    }.get(by, func.coalesce("", ""))
    earning: Any = aliased(LedgerTransaction)
    is_earning = or_(
        _transaction.kind == TransactionKind.EARNING,
        (_transaction.kind == TransactionKind.REVERSAL) & (earning.kind == TransactionKind.EARNING),
    )
    query = (
        select(key, func.sum(_posting.amount_microcredits))
        .select_from(LedgerTransaction)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .outerjoin(earning, earning.id == _transaction.reverses_id)
        .where(
            _transaction.account_id == account_id,
            _transaction.at >= days[0],
            _transaction.at < days[1],
            _posting.ledger_account.startswith(f"account/{account_id}/earnings/", autoescape=True),
            is_earning,
        )
        .group_by(key)
    )
    return {str(name): int(amount) for name, amount in session.execute(query)}
