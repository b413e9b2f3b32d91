"""Payers of accounts, and their balances."""

from sqlmodel import Session

from activities.db import tables


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
