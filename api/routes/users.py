"""Users of an account, and their API keys."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.schemas.accounts import (
    ApiKey,
    ApiKeyCreation,
    ApiKeyPage,
    NewApiKey,
    User,
    UserChange,
    UserCreation,
    UserPage,
)
from api.services import api_keys, users

router = APIRouter(tags=["accounts"])
UserReader = Annotated[Caller, Depends(Needs("users:read"))]
UserWriter = Annotated[Change, changing("users:write")]
KeyReader = Annotated[Caller, Depends(Needs("api-keys:read"))]
KeyWriter = Annotated[Change, changing("api-keys:write")]


@router.get("/v1/users", operation_id="list_users")
def list_users(caller: UserReader, paging: Paging) -> UserPage:
    """The account's own users, and those who have accepted an invitation to it."""
    account_id = caller.account_id
    with database().read() as session:
        shown = partial(users.user_responses, session, account_id)
        view = (col(tables.User.id), shown)
        return page(session, UserPage, users.users_of(account_id), paging, view)


@router.post("/v1/users", status_code=201, operation_id="create_user")
async def create_user(asked: UserCreation, change: UserWriter) -> User:
    return await change.apply(User, lambda context: users.create_user(context, asked))


@router.patch("/v1/users/{user_id}", operation_id="change_user")
async def change_user(user_id: str, asked: UserChange, change: UserWriter) -> User:
    """Change the role of a user in the account, at once for all of the user's keys."""
    return await change.apply(User, lambda context: users.change_user(context, user_id, asked))


@router.delete("/v1/users/{user_id}", operation_id="remove_user")
async def remove_user(user_id: str, change: UserWriter) -> User:
    """Remove an invited user from the account; the user's keys there are revoked."""
    return await change.apply(User, lambda context: users.remove_user(context, user_id))


@router.get("/v1/api-keys", operation_id="list_api_keys")
def list_api_keys(caller: KeyReader, paging: Paging) -> ApiKeyPage:
    """The account's API keys that are not revoked, without their secrets, which are not stored."""
    rows = select(tables.ApiKey).where(
        tables.ApiKey.account_id == caller.account_id, col(tables.ApiKey.revoked_at).is_(None)
    )
    with database().read() as session:
        view = (col(tables.ApiKey.id), each(api_keys.key_response))
        return page(session, ApiKeyPage, rows, paging, view)


@router.post("/v1/api-keys", status_code=201, operation_id="create_api_key")
async def create_api_key(asked: ApiKeyCreation, change: KeyWriter) -> NewApiKey:
    """Create an API key; only this answer has its secret."""
    return await change.apply(NewApiKey, lambda context: api_keys.create_key(context, asked))


@router.delete("/v1/api-keys/{key_id}", operation_id="revoke_api_key")
async def revoke_api_key(key_id: str, change: KeyWriter, cascade: bool = True) -> ApiKey:
    """Revoke an API key immediately and permanently, with all keys that were made with it.

    For an owner who replaces a key, `cascade=false` leaves the keys that were made with it.
    """
    return await change.apply(
        ApiKey, lambda context: api_keys.revoke_key(context, key_id, cascade=cascade)
    )
