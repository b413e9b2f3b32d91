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
    owner = new_user(account_id, owner_email, "owner", now)
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


def new_user(account_id: str, email: str | None, role: str, now: datetime) -> tables.User:
    """The row of a new user, whose address is a claim that others may make as well.

    The column `email` is unique, so until an address is proved it holds a placeholder.
    """
    user_id = new_id("usr")
    return tables.User(
        id=user_id,
        account_id=account_id,
        email=f"{user_id}@unproved.invalid",
        claimed_email=email,
        role=role,
        created_at=now,
    )


def role_in(session: Session, user: tables.User, account_id: str) -> str | None:
    """The role of a user in an account; None: the user is not of it."""
    if user.account_id == account_id:
        return user.role
    member = session.get(tables.AccountMember, (account_id, user.id))
    return member.role if member is not None else None
