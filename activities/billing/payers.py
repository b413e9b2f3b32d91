"""Payers of accounts, and their balances."""

from collections.abc import Iterable

from sqlalchemy import func, literal
from sqlmodel import Session, col, select

from activities.db import tables

_AT_ONCE = 500


def credits_name(account_id: str) -> str:
    """The name of the ledger account that holds an account's credits."""
    return f"account/{account_id}/credits"


def earnings_name(account_id: str, provider_id: str) -> str:
    """The name of the ledger account that holds what a provider has earned until its payout."""
    return f"account/{account_id}/earnings/{provider_id}"


def payer_of(account: tables.Account) -> str:
    """The id of the payer: the account's billing account, or the account itself."""
    return account.billing_account_id or account.id


def balance_microcredits(session: Session, account: tables.Account) -> int:
    """The balance of an account's payer; below zero, the debt."""
    row = session.get(tables.LedgerAccount, credits_name(payer_of(account)))
    return row.balance_microcredits if row is not None else 0


def able_to_pay(session: Session, account_ids: Iterable[str]) -> set[str]:
    """The accounts whose payer has a balance above zero."""
    wanted = sorted(account_ids)
    able: set[str] = set()
    for start in range(0, len(wanted), _AT_ONCE):
        payer_id = func.coalesce(tables.Account.billing_account_id, tables.Account.id)
        name = literal("account/") + payer_id + literal("/credits")
        query = (
            select(tables.Account.id)
            .join(tables.LedgerAccount, col(tables.LedgerAccount.name) == name)
            .where(
                col(tables.Account.id).in_(wanted[start : start + _AT_ONCE]),
                col(tables.LedgerAccount.balance_microcredits) > 0,
            )
        )
        able.update(session.exec(query))
    return able
