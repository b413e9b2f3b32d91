"""Rows of accounts: what a new account consists of."""

from datetime import datetime

from sqlmodel import Session

from activities.db import tables
from activities.db.ids import new_id


def add_account(
    session: Session, name: str, owner_email: str | None, now: datetime
) -> tuple[tables.Account, tables.User]:
    """Add an account with its owner and its Personal project; the caller commits."""
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
