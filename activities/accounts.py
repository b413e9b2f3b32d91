"""Rows of accounts: what a new one consists of, who pays for it, and what is left to pay with."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import func, literal
from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id

_AT_ONCE = 500


def add_account(
    session: Session, name: str, owner_email: str | None, now: datetime
) -> tuple[tables.Account, tables.User]:
    """An account with its owner and its Personal project. Nothing is committed here."""
    account_id, project_id = new_id("acc"), new_id("prj")
    account = tables.Account(
        id=account_id,
        name=name,
        personal_project_id=project_id,
        created_at=now,
        updated_at=now,
    )
    session.add(account)
    session.flush()
    owner = tables.User(
        id=new_id("usr"),
        account_id=account_id,
        email=owner_email or f"owner@{account_id}.invalid",
        role="owner",
        created_at=now,
    )
    project = tables.Project(
        id=project_id,
        account_id=account_id,
        name="Personal",
        personal=True,
        created_at=now,
        updated_at=now,
    )
    session.add_all((owner, project))
    session.flush()
    return account, owner


def credits_name(account_id: str) -> str:
    """The ledger account that holds an account's credits."""
    return f"account/{account_id}/credits"


def payer_of(account: tables.Account) -> str:
    """The id of the account that pays for this one."""
    return account.billing_account_id or account.id


def balance_microcredits(session: Session, account: tables.Account) -> int:
    """What the payer of an account has left; below zero, what it owes."""
    row = session.get(tables.LedgerAccount, credits_name(payer_of(account)))
    return row.balance_microcredits if row is not None else 0


def able_to_pay(session: Session, account_ids: Iterable[str]) -> set[str]:
    """Those of the accounts whose payer has something left."""
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
