"""Accounts, users and API keys: their responses and their changes."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, or_, select

from activities.accounts import accounts
from activities.billing import payers
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.nodes.join_tokens import expire_join_tokens
from api.authorization import SCOPES, Caller, hash_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import accounts as schemas
from api.services.account_limits import check_limit
from api.services.ownership import own

MOST_WOKEN = 100


def account_response(session: Session, row: tables.Account) -> schemas.Account:
    return schemas.Account(
        **row.model_dump(exclude={"job_bytes", "wallets", "idle_workload", "idle_revision"}),
        wallets=row.wallets or {},
        idle_workload=schemas.IdleWorkloadShown(**row.idle_workload) if row.idle_workload else None,
        balance_microcredits=payers.balance_microcredits(session, row),
    )


def user_response(row: tables.User) -> schemas.User:
    return schemas.User(
        id=row.id,
        account_id=row.account_id,
        email=row.claimed_email or row.email,
        email_verified=row.email_verified_at is not None,
        role=row.role,
        created_at=row.created_at,
    )


def key_response(row: tables.ApiKey) -> schemas.ApiKey:
    return schemas.ApiKey(**row.model_dump())


def find_account(session: Session, account_id: str) -> tables.Account:
    """The account of this id, whoever owns it.

    Raises: Problem `not-found`, when there is no such account.
    """
    row = session.get(tables.Account, account_id)
    if row is None:
        raise missing("account", account_id)
    return row


def create_account(context: ChangeContext, asked: schemas.AccountCreation) -> schemas.Account:
    _check_name(context.session, asked.name)
    _check_billing(context.session, asked.billing_account_id, None)
    account, _ = accounts.add_account(context.session, asked.name, asked.owner_email, context.now)
    context.concerned_account_id = account.id
    account.plan = asked.plan
    account.billing_account_id = asked.billing_account_id
    return account_response(context.session, account)


def change_account(
    context: ChangeContext, account_id: str, asked: schemas.AccountChange
) -> schemas.Account:
    row = find_account(context.session, account_id)
    context.concerned_account_id = row.id
    return _changed(context, row, asked)


def change_own_account(context: ChangeContext, asked: schemas.OwnAccountChange) -> schemas.Account:
    row = find_account(context.session, context.caller.account_id)
    return _changed(context, row, asked)


def _changed(
    context: ChangeContext,
    row: tables.Account,
    asked: schemas.AccountChange | schemas.OwnAccountChange,
) -> schemas.Account:
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    for name in ("name", "plan"):
        if name in given and given[name] is None:
            raise invalid(field_error(name, "is not null"))
    if "name" in given and given["name"] != row.name:
        _check_name(context.session, given["name"])
    if "billing_account_id" in given:
        _check_billing(context.session, given["billing_account_id"], row.id)
    if given.get("idle_workload") is not None:
        given["idle_workload"] = given["idle_workload"].model_dump()
    for name, value in given.items():
        setattr(row, name, value)
    if {"wallets", "idle_workload"} & set(given):
        row.idle_revision += 1
        _wake_idle_nodes(context, row)
    row.updated_at = context.now
    return account_response(context.session, row)


def _wake_idle_nodes(context: ChangeContext, row: tables.Account) -> None:
    """Wake the nodes that run the idle workload; those beyond the limit find it by themselves."""
    nodes = select(tables.Node.id).where(
        tables.Node.account_id == row.id,
        col(tables.Node.mining),
        col(tables.Node.status) != "archived",
    )
    for node_id in context.session.exec(nodes.limit(MOST_WOKEN)).all():
        context.wake(node_id)


def _check_name(session: Session, name: str) -> None:
    if session.exec(select(tables.Account).where(tables.Account.name == name)).first():
        raise Problem("conflict", f"account {name}: there is one of this name")


def _check_email(session: Session, account_id: str, email: str) -> None:
    """Refuse a second user of an account with one address.

    Users of other accounts do not count: nobody has proved that an address is theirs, and an answer
    must not tell whose customer it is.
    """
    same = or_(tables.User.email == email, tables.User.claimed_email == email)
    if session.exec(select(tables.User).where(tables.User.account_id == account_id, same)).first():
        raise Problem("conflict", f"user {email}: the account has one with this address")


def _check_billing(session: Session, payer_id: str | None, account_id: str | None) -> None:
    if payer_id is None:
        return
    advisory_lock(session, "billing-accounts")  # Two changes at once could make a chain of payers.
    payer = session.get(tables.Account, payer_id)
    if payer is None or payer_id == account_id:
        raise invalid(field_error("billing_account_id", "is the id of another account", payer_id))
    if payer.billing_account_id is not None:
        rule = f"pays for itself; {payer_id} is paid for by {payer.billing_account_id}"
        raise invalid(field_error("billing_account_id", rule, payer_id))
    paid = select(tables.Account.name).where(tables.Account.billing_account_id == account_id)
    names = session.exec(paid.order_by(tables.Account.name)).all() if account_id else []
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise Problem(
            "conflict",
            f"account {account_id}: pays for {', '.join(names[:5])}{more}; an account that pays "
            "for others pays for itself",
        )


def create_user(context: ChangeContext, asked: schemas.UserCreation) -> schemas.User:
    """Add a user to the account; the address is a claim until its holder proves it."""
    account_id = context.caller.account_id
    advisory_lock(context.session, f"users/{account_id}")
    _check_email(context.session, account_id, asked.email)
    check_limit(context, tables.User)
    row = accounts.new_user(account_id, asked.email, asked.role, context.now)
    context.session.add(row)
    return user_response(row)


def create_key(context: ChangeContext, asked: schemas.ApiKeyCreation) -> schemas.NewApiKey:
    """Create an API key for a user of the account, with no more power than the caller's key."""
    caller = context.caller
    scopes = asked.scopes if asked.scopes is not None else tuple(sorted(caller.scopes))
    _check_scopes(caller, scopes)
    _check_expiry(asked.expires_at, caller.expires_at, context.now)
    check_limit(context, tables.ApiKey)
    # The secret has 256 random bits, so nobody can guess it, and a plain hash is safe to store.
    secret = f"bl_{secrets.token_urlsafe(32)}"
    row = tables.ApiKey(
        id=new_id("key"),
        account_id=context.caller.account_id,
        user_id=_holder(context.session, caller, asked.user_id),
        parent_key_id=caller.key_id,
        name=asked.name,
        secret_sha256=hash_of(secret),
        scopes=sorted(set(scopes)),
        expires_at=asked.expires_at or caller.expires_at,
        created_at=context.now,
    )
    context.session.add(row)
    return schemas.NewApiKey(**row.model_dump(), secret=secret)


def _check_scopes(caller: Caller, scopes: tuple[str, ...]) -> None:
    unknown = [
        field_error(f"scopes.{index}", "is *, read, <noun>:read or <noun>:write", scope)
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


def _check_expiry(expires_at: datetime | None, latest: datetime | None, now: datetime) -> None:
    if expires_at is None:
        return
    if expires_at <= now:
        raise invalid(field_error("expires_at", "lies in the future", expires_at.isoformat()))
    if latest is not None and expires_at > latest:
        rule = f"is at the latest {latest.isoformat()}, when the key expires that makes it"
        raise invalid(field_error("expires_at", rule, expires_at.isoformat()))


def _holder(session: Session, caller: Caller, user_id: str | None) -> str:
    """The id of the user who gets the key: the given user, else the caller.

    When an administrator acts for the account, its owner is the default.
    """
    if user_id is not None:
        user = session.get(tables.User, user_id)
        if user is None or user.account_id != caller.account_id:
            raise invalid(field_error("user_id", "is the id of a user of the account", user_id))
        if user_id != caller.user_id and not caller.is_owner:
            raise Problem("forbidden", f"user {caller.user_id}: only owners make keys of others")
        return user_id
    if caller.account_id == caller.home_account_id:
        return caller.user_id
    owners = select(tables.User).where(
        tables.User.account_id == caller.account_id, tables.User.role == "owner"
    )
    owner = session.exec(owners.order_by(col(tables.User.id))).first()
    if owner is None:
        raise invalid(field_error("user_id", "is needed: the account has no owner"))
    return owner.id


def revoke_key(context: ChangeContext, key_id: str, *, cascade: bool) -> schemas.ApiKey:
    """Revoke a key, and with `cascade` all keys that were made with it, in whatever account.

    With them go the join tokens that were made with these keys and that no machine has used.

    Raises: Problem `forbidden`, when a caller who is no owner revokes a key of another user, or
    leaves the keys that were made with it.
    """
    row = own(context.session, tables.ApiKey, key_id, context.caller)
    is_own = row.user_id == context.caller.user_id and cascade
    if not is_own and not context.caller.is_owner:
        raise Problem("forbidden", f"key {key_id}: only owners may do this to it")
    revoked = [row, *(_made_with(context.session, [row.id]) if cascade else ())]
    for each in revoked:
        each.revoked_at = each.revoked_at or context.now
    if cascade:
        expire_join_tokens(context.session, [each.id for each in revoked], context.now)
    return key_response(row)


def _made_with(session: Session, key_ids: Sequence[str]) -> list[tables.ApiKey]:
    """All keys that were made with these keys, or with such keys in turn."""
    found: list[tables.ApiKey] = []
    while key_ids:
        made = session.exec(
            select(tables.ApiKey).where(col(tables.ApiKey.parent_key_id).in_(key_ids))
        ).all()
        found += made
        key_ids = [key.id for key in made]
    return found
