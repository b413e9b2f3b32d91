"""API keys: making them with no more power than the caller's, and revoking them."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, select

from activities.accounts.accounts import role_in
from activities.db import tables
from activities.db.ids import new_id
from activities.nodes.join_tokens import expire_join_tokens
from api.authorization import SCOPES, Caller, hash_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import accounts as schemas
from api.services.account_limits import check_limit
from api.services.ownership import own


def key_response(row: tables.ApiKey) -> schemas.ApiKey:
    return schemas.ApiKey(**row.model_dump())


def create_key(context: ChangeContext, asked: schemas.ApiKeyCreation) -> schemas.NewApiKey:
    """Create an API key for a user of the account, with no more power than the caller's key.

    Raises: Problem `forbidden`, also with a key that has a rate limit of its own, because several
    keys call more often than one.
    """
    caller = context.caller
    if caller.requests_per_minute is not None:
        detail = f"key {caller.key_id}: has a rate limit of its own, so it makes no keys"
        raise Problem("forbidden", detail)
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
        requests_per_minute=asked.requests_per_minute,
        expires_at=asked.expires_at or caller.expires_at,
        created_at=context.now,
    )
    context.session.add(row)
    return schemas.NewApiKey(**row.model_dump(), secret=secret)


_SCOPE_RULE = "is *, read, <noun>:read or <noun>:write, the noun in the plural, as in jobs:write"


def _check_scopes(caller: Caller, scopes: tuple[str, ...]) -> None:
    unknown = [
        field_error(f"scopes.{index}", _SCOPE_RULE, scope)
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
        if user is None or role_in(session, user, caller.account_id) is None:
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
    if cascade:
        revoke(context, [row])
    else:
        row.revoked_at = row.revoked_at or context.now
    return key_response(row)


def revoke(context: ChangeContext, keys: Sequence[tables.ApiKey]) -> None:
    """Revoke keys, all that were made with them, and the unused join tokens of all of these."""
    revoked = [*keys, *_made_with(context.session, [key.id for key in keys])]
    for each in revoked:
        each.revoked_at = each.revoked_at or context.now
    expire_join_tokens(context.session, [each.id for each in revoked], context.now)


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
