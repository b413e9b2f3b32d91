"""Credentials: the keys by which the platform uses the account's providers."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool

from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.schemas.credentials import Credential, CredentialList, CredentialSetting
from api.services import credentials

router = APIRouter(prefix="/v1/credentials", tags=["providers"])
Reader = Annotated[Caller, Depends(Needs("credentials:read"))]
Writer = Annotated[Change, changing("credentials:write")]


@router.get("", operation_id="list_credentials")
def list_credentials(caller: Reader) -> CredentialList:
    """Where each key of the account's providers is, and its last characters; never a key."""
    with database().read() as session:
        return credentials.credentials_of_account(session, caller)


@router.put("/{kind}/{field}", operation_id="set_credential")
async def set_credential(
    kind: str, field: str, asked: CredentialSetting, change: Writer
) -> Credential:
    """Store a key of a kind of provider under its field, in place of an earlier one.

    Its reference is in the answer. Providers that use it are checked again.
    A key in the server's environment is 409.
    """
    given = await run_in_threadpool(credentials.read_value, kind, field, asked)
    return await change.apply(
        Credential, lambda context: credentials.set_credential(context, kind, field, given)
    )


@router.delete("/{kind}/{field}", operation_id="remove_credential")
async def remove_credential(kind: str, field: str, change: Writer) -> Credential:
    """Remove a key from the store; one that a provider uses is 409."""
    return await change.apply(
        Credential, lambda context: credentials.remove_credential(context, kind, field)
    )
