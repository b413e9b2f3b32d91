"""Who calls the API, for which account, and what the caller's API key allows.

A resource of another account is answered with 404, where the resource is read. A request that
the scopes of the key do not allow is answered with 403, here.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Row
from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.session import database
from api.problems import Problem, missing, too_many
from workflows.rules.accounts.permissions import (
    PERMISSIONS,
    SCOPED,
    Role,
    Verb,
    permits,
    refusal,
    roles_for,
)

NOUNS = tuple(PERMISSIONS)
USE_OF_SECRETS = "secrets:use"
"""The scope to have a source opened with a secret of its project."""
USE_OF_KEYS = "credentials:use"
"""The scope to have sources and jobs use the project's third-party keys."""
SCOPES = frozenset(
    {
        *("*", "read", USE_OF_SECRETS, USE_OF_KEYS),
        *(f"{noun}:{deed}" for noun in NOUNS for deed in SCOPED),
    }
)
_USE_INTERVAL = timedelta(minutes=10)
# Columns instead of objects, because every request runs this query.
_KEYS = select(  # type: ignore[call-overload]
    tables.ApiKey.id,
    tables.ApiKey.account_id,
    tables.ApiKey.user_id,
    tables.ApiKey.scopes,
    tables.ApiKey.expires_at,
    tables.ApiKey.revoked_at,
    tables.ApiKey.last_used_at,
    tables.ApiKey.requests_per_minute,
    tables.Account.is_administrator,
    tables.User.role,
    col(tables.User.account_id).label("user_account_id"),
    col(tables.AccountMember.role).label("member_role"),
)
_KEYS = (
    _KEYS.join(tables.Account, col(tables.Account.id) == tables.ApiKey.account_id)
    .join(tables.User, col(tables.User.id) == tables.ApiKey.user_id)
    .outerjoin(
        tables.AccountMember,
        (col(tables.AccountMember.account_id) == tables.ApiKey.account_id)
        & (col(tables.AccountMember.user_id) == tables.ApiKey.user_id),
    )
)
_bearer = HTTPBearer(auto_error=False, description="An API key, `bl_…`.")


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: a user with an API key, who acts for one account."""

    account_id: str
    user_id: str
    key_id: str
    scopes: frozenset[str]
    is_administrator: bool
    home_account_id: str
    """The key's own account; an administrator may act for another one."""
    role: str = "member"
    expires_at: datetime | None = None
    """When the key expires; None: never."""
    requests_per_minute: int | None = None
    """The key's own rate limit; None: it has none."""
    address: str | None = None
    """The address of the client."""
    user_account_id: str | None = None
    """The user's own account, where the key is of another one that the user is a member of."""

    @property
    def is_owner(self) -> bool:
        """Whether the caller's user may change the account, its users and their keys."""
        return self.role == Role.OWNER

    @property
    def is_at_home(self) -> bool:
        """Whether the caller acts for the user's own account.

        Only there a user's memberships count: owners of other accounts make keys of their users,
        who may be members elsewhere.
        """
        return self.user_account_id is None and self.account_id == self.home_account_id

    def may(self, scope: str) -> bool:
        """Whether the user's role and the key's scopes include this scope, such as `jobs:write`."""
        noun, _, deed = scope.partition(":")
        if deed in SCOPED and not self.is_permitted(noun, Verb(deed)):
            return False
        return self.has_scope(scope)

    def is_permitted(self, noun: str, verb: Verb) -> bool:
        """Whether the role of the caller's user permits this, whatever the scopes of the key."""
        return permits(noun, verb, self.role, is_administrator=self.is_administrator)

    def has_scope(self, scope: str) -> bool:
        """Whether the scopes of the key include this scope, whatever the role of its user."""
        noun, _, deed = scope.partition(":")
        if deed == "read" and ("read" in self.scopes or f"{noun}:write" in self.scopes):
            return True
        return "*" in self.scopes or scope in self.scopes


class KeyRefused(Problem):
    """The problem of a request whose API key is not taken.

    account_id, key_id: of the key, where it is known.
    """

    def __init__(self, code: str, detail: str, key: Row[Any] | None = None) -> None:
        needed = {"WWW-Authenticate": "Bearer"} if code == "unauthorized" else None
        super().__init__(code, detail, (), needed)
        self.account_id: str | None = key.account_id if key is not None else None
        self.key_id: str | None = key.id if key is not None else None


class Needs:
    """The dependency of a route that gives the caller, if the caller's role and key permit `scope`.

    verb: what the route does, where that is more than the verb of its scope.
    A key that calls more often than `requests_per_minute` is refused too.
    Raises: LookupError, when no rule says who may do this.
    """

    def __init__(self, scope: str, verb: Verb | None = None) -> None:
        self.scope = scope
        self.noun, _, deed = scope.partition(":")
        self.verb = verb or Verb(deed)
        roles_for(self.noun, self.verb)

    def __call__(
        self,
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
        account: Annotated[str | None, Header(alias="X-Baseload-Account")] = None,
    ) -> Caller:
        return self.caller_of(request, bearer.credentials if bearer else None, account)

    def caller_of(
        self, request: HTTPConnection, secret: str | None, account: str | None = None
    ) -> Caller:
        """The caller of a request or a WebSocket, with this API key. Blocking.

        Raises: as `authenticate`; Problem `forbidden`, `too-many-requests`.
        """
        caller = authenticate(secret, account)
        caller = replace(caller, address=address_of(request))
        request.state.caller = caller
        count_request(request.app.state, caller)
        self.check(caller)
        return caller

    def check(self, caller: Caller) -> None:
        """Raises: Problem `forbidden`, unless the caller's role and key permit this."""
        if not caller.is_permitted(self.noun, self.verb):
            detail = f"user {caller.user_id}: {refusal(self.noun, self.verb)}"
            raise Problem("forbidden", detail)
        if not caller.has_scope(self.scope):
            raise Problem("forbidden", f"key {caller.key_id} lacks the scope {self.scope}")


def count_request(state: Any, caller: Caller) -> None:
    """Count a request, or a WebSocket that is opened, of the caller's key.

    state: of the application; each process of the API counts by itself.
    Raises: Problem `too-many-requests`, when the key or its account has made too many.
    """
    own = caller.requests_per_minute
    if own and (wait_s := state.own_request_rate.wait_s(caller.key_id, own)) > 0:
        raise too_many(f"key {caller.key_id}: more than its {own} requests a minute", wait_s)
    if (wait_s := state.request_rate.wait_s(caller.key_id)) > 0:
        raise too_many(f"key {caller.key_id}: too many requests", wait_s)
    if (wait_s := state.account_request_rate.wait_s(caller.account_id)) > 0:
        raise too_many(f"account {caller.account_id}: too many requests", wait_s)


def authenticate(secret: str | None, act_for: str | None = None) -> Caller:
    """The caller who holds this API key.

    act_for: the id of the account to act for, from an administrator; None: the key's own account.
    Raises: KeyRefused `unauthorized`, when the key is missing, unknown, expired or revoked;
    `forbidden`, when a caller who is no administrator acts for another account; Problem
    `not-found`, when that account does not exist.
    """
    if not secret:
        raise KeyRefused("unauthorized", "Authorization: Bearer bl_… is missing")
    with database().read() as session:
        key = session.execute(_KEYS.where(tables.ApiKey.secret_sha256 == hash_of(secret))).first()
        now = datetime.now(UTC)
        if key is None or key.revoked_at is not None or _role_of(key) is None:
            raise KeyRefused("unauthorized", "the key is unknown or revoked", key)
        if key.expires_at is not None and key.expires_at <= now:
            detail = f"key {key.id} has expired on {key.expires_at:%Y-%m-%d %H:%M} UTC"
            raise KeyRefused("unauthorized", detail, key)
        caller = _caller_of(session, key, act_for)
    _note_use(key, now)
    return caller


def caller_by_key(key_id: str, act_for: str) -> Caller:
    """The caller who holds the API key of this id, for what outlasts its request.

    Raises: as `authenticate`.
    """
    with database().read() as session:
        key = session.execute(_KEYS.where(tables.ApiKey.id == key_id)).first()
        if key is None or key.revoked_at is not None or _role_of(key) is None:
            raise KeyRefused("unauthorized", "the key is unknown or revoked", key)
        if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
            raise KeyRefused("unauthorized", f"key {key.id} has expired", key)
        return _caller_of(session, key, act_for)


def hash_of(secret: str) -> str:
    """The hash of an API key's secret, the only form in which the secret is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _caller_of(session: Session, key: Row[Any], act_for: str | None) -> Caller:
    is_administrator = key.is_administrator
    if act_for is not None and act_for != key.account_id:
        if not is_administrator:
            raise KeyRefused("forbidden", "X-Baseload-Account is for administrators", key)
        account = session.get(tables.Account, act_for)
        if account is None or account.removed_at is not None:
            raise missing("account", act_for)
    return Caller(
        account_id=act_for or key.account_id,
        user_id=key.user_id,
        key_id=key.id,
        scopes=frozenset(key.scopes),
        is_administrator=is_administrator,
        home_account_id=key.account_id,
        role=_role_of(key) or "",
        expires_at=key.expires_at,
        requests_per_minute=key.requests_per_minute,
        user_account_id=None if _is_own(key) else key.user_account_id,
    )


def _is_own(key: Row[Any]) -> bool:
    """Whether the key is of its user's own account."""
    return bool(key.account_id == key.user_account_id)


def _role_of(key: Row[Any]) -> str | None:
    """The role of the key's user in the key's account; None: the user is not of that account."""
    role: str | None = key.role if _is_own(key) else key.member_role
    return role


def _note_use(key: Row[Any], now: datetime) -> None:
    if key.last_used_at is not None and now - key.last_used_at < _USE_INTERVAL:
        return
    with database().write() as session:
        row = session.get(tables.ApiKey, key.id)
        if row is not None:
            row.last_used_at = now


def address_of(request: HTTPConnection) -> str | None:
    """The address of the client, if the server knows it."""
    return request.client.host if request.client else None
