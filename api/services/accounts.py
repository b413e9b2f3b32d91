"""Accounts, users, keys and projects: how they are shown, and how they are changed."""

import secrets
from datetime import datetime

from sqlmodel import Session, col, select

from activities.accounts import accounts
from activities.billing import payers
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import take_turn
from api.authorization import SCOPES, Caller, hash_of
from api.changes import Step
from api.problems import Problem, invalid, missing, mistake
from api.schemas import accounts as shapes
from api.services.ownership import own


def shown_account(session: Session, row: tables.Account) -> shapes.Account:
    return shapes.Account(
        **row.model_dump(), balance_microcredits=payers.balance_microcredits(session, row)
    )


def shown_user(row: tables.User) -> shapes.User:
    return shapes.User(**row.model_dump())


def shown_key(row: tables.ApiKey) -> shapes.ApiKey:
    return shapes.ApiKey(**row.model_dump())


def shown_audit(row: tables.AuditRow) -> shapes.AuditEntry:
    return shapes.AuditEntry(**row.model_dump())


def find_account(session: Session, account_id: str) -> tables.Account:
    """Any account, for administrators.

    Raises: Problem `not-found`.
    """
    row = session.get(tables.Account, account_id)
    if row is None:
        raise missing("account", account_id)
    return row


def create_account(step: Step, asked: shapes.AccountCreation) -> shapes.Account:
    _check_name(step.session, asked.name)
    _check_email(step.session, asked.owner_email)
    _check_billing(step.session, asked.billing_account_id, None)
    account, _ = accounts.add_account(step.session, asked.name, asked.owner_email, step.now)
    account.plan = asked.plan
    account.billing_account_id = asked.billing_account_id
    return shown_account(step.session, account)


def change_account(step: Step, account_id: str, asked: shapes.AccountChange) -> shapes.Account:
    row = find_account(step.session, account_id)
    return _changed(step, row, asked)


def change_own_account(step: Step, asked: shapes.OwnAccountChange) -> shapes.Account:
    row = find_account(step.session, step.caller.account_id)
    return _changed(step, row, asked)


def _changed(
    step: Step, row: tables.Account, asked: shapes.AccountChange | shapes.OwnAccountChange
) -> shapes.Account:
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    for name in ("name", "plan"):
        if name in given and given[name] is None:
            raise invalid(mistake(name, "is not null"))
    if "name" in given and given["name"] != row.name:
        _check_name(step.session, given["name"])
    if "billing_account_id" in given:
        _check_billing(step.session, given["billing_account_id"], row.id)
    for name, value in given.items():
        setattr(row, name, value)
    row.updated_at = step.now
    return shown_account(step.session, row)


def _check_name(session: Session, name: str) -> None:
    if session.exec(select(tables.Account).where(tables.Account.name == name)).first():
        raise Problem("conflict", f"account {name}: there is one of this name")


def _check_email(session: Session, email: str | None) -> None:
    if email and session.exec(select(tables.User).where(tables.User.email == email)).first():
        raise Problem("conflict", f"user {email}: there is one with this address")


def _check_billing(session: Session, payer_id: str | None, account_id: str | None) -> None:
    if payer_id is None:
        return
    take_turn(session, "billing-accounts")  # two changes at once could make a chain
    payer = session.get(tables.Account, payer_id)
    if payer is None or payer_id == account_id:
        raise invalid(mistake("billing_account_id", "is the id of another account", payer_id))
    if payer.billing_account_id is not None:
        rule = f"pays for itself; {payer_id} is paid for by {payer.billing_account_id}"
        raise invalid(mistake("billing_account_id", rule, payer_id))
    paid = select(tables.Account.name).where(tables.Account.billing_account_id == account_id)
    names = session.exec(paid.order_by(tables.Account.name)).all() if account_id else []
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise Problem(
            "conflict",
            f"account {account_id}: pays for {', '.join(names[:5])}{more}; who pays for others "
            "pays for itself",
        )


def create_user(step: Step, asked: shapes.UserCreation) -> shapes.User:
    _check_email(step.session, asked.email)
    row = tables.User(
        id=new_id("usr"),
        account_id=step.caller.account_id,
        email=asked.email,
        role=asked.role,
        created_at=step.now,
    )
    step.session.add(row)
    return shown_user(row)


def create_key(step: Step, asked: shapes.ApiKeyCreation) -> shapes.NewApiKey:
    """A key for a user of the account, with no more scopes than the asking key has."""
    scopes = asked.scopes if asked.scopes is not None else tuple(sorted(step.caller.scopes))
    _check_scopes(step.caller, scopes)
    _check_expiry(asked.expires_at, step.now)
    # 256 random bits: nothing to guess, so that a plain hash is enough to keep.
    secret = f"bl_{secrets.token_urlsafe(32)}"
    row = tables.ApiKey(
        id=new_id("key"),
        account_id=step.caller.account_id,
        user_id=_holder(step.session, step.caller, asked.user_id),
        name=asked.name,
        secret_sha256=hash_of(secret),
        scopes=sorted(set(scopes)),
        expires_at=asked.expires_at,
        created_at=step.now,
    )
    step.session.add(row)
    return shapes.NewApiKey(**row.model_dump(), secret=secret)


def _check_scopes(caller: Caller, scopes: tuple[str, ...]) -> None:
    unknown = [
        mistake(f"scopes.{index}", "is *, read, <noun>:read or <noun>:write", scope)
        for index, scope in enumerate(scopes)
        if scope not in SCOPES
    ]
    if unknown:
        raise invalid(*unknown)
    beyond = [scope for scope in scopes if not _within(caller, scope)]
    if beyond:
        raise Problem("forbidden", f"key {caller.key_id} cannot give {', '.join(beyond)}")


def _within(caller: Caller, scope: str) -> bool:
    return "*" in caller.scopes or scope in caller.scopes or (":" in scope and caller.may(scope))


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise invalid(mistake("expires_at", "lies in the future", expires_at.isoformat()))


def _holder(session: Session, caller: Caller, user_id: str | None) -> str:
    """The asked user of the account; else the caller, or the owner when someone acts for it."""
    if user_id is not None:
        user = session.get(tables.User, user_id)
        if user is None or user.account_id != caller.account_id:
            raise invalid(mistake("user_id", "is the id of a user of the account", user_id))
        return user_id
    if caller.account_id == caller.home_account_id:
        return caller.user_id
    owners = select(tables.User).where(
        tables.User.account_id == caller.account_id, tables.User.role == "owner"
    )
    owner = session.exec(owners.order_by(col(tables.User.id))).first()
    if owner is None:
        raise invalid(mistake("user_id", "is needed: the account has no owner"))
    return owner.id


def revoke_key(step: Step, key_id: str) -> shapes.ApiKey:
    row = own(step.session, tables.ApiKey, key_id, step.caller)
    row.revoked_at = row.revoked_at or step.now
    return shown_key(row)
