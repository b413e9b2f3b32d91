"""Providers: the sources of machines that an account has enabled."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.providers import Provider, ProviderChange, ProviderCreation, ProviderPage
from api.services import providers
from api.services.lifecycles import of_status
from api.services.ownership import own
from workflows.contracts.statuses import ProviderStatus

router = APIRouter(prefix="/v1/providers", tags=["providers"])
Reader = Annotated[Caller, Depends(Needs("providers:read"))]
Writer = Annotated[Change, changing("providers:write")]


@router.get("", operation_id="list_providers")
def list_providers(caller: Reader, paging: Paging, status: str | None = None) -> ProviderPage:
    """The account's providers; archived ones only when asked for by status."""
    rows = select(tables.Provider).where(
        tables.Provider.account_id == caller.account_id,
        of_status(tables.Provider, status, ProviderStatus),
    )
    with database().read() as session:
        view = (col(tables.Provider.id), partial(providers.provider_responses, session))
        return page(session, ProviderPage, rows, paging, view)


@router.post("", status_code=202, operation_id="enable_provider")
async def enable_provider(asked: ProviderCreation, change: Writer) -> Provider:
    """Enable a provider; `status` says when it is ready, `checks` why it is not."""
    reading = (change.caller, asked.kind.value, asked.credentials)
    given = await run_in_threadpool(providers.read_credentials, *reading)
    return await change.apply(
        Provider, lambda context: providers.enable_provider(context, asked, given)
    )


@router.get("/{provider_id}", operation_id="get_provider")
def get_provider(provider_id: str, caller: Reader) -> Provider:
    with database().read() as session:
        row = own(session, tables.Provider, provider_id, caller)
        return providers.provider_response(session, row)


@router.patch("/{provider_id}", status_code=202, operation_id="change_provider")
async def change_provider(provider_id: str, asked: ProviderChange, change: Writer) -> Provider:
    """Change a provider's key, its preferred credits, or whether its usage fee is waived.

    All checks run again with another key, which must be of the same project.
    """
    reading = (change.caller, provider_id, asked.credentials)
    given = await run_in_threadpool(providers.read_credentials_of, *reading)
    return await change.apply(
        Provider, lambda context: providers.change_provider(context, provider_id, asked, given)
    )


@router.post("/{provider_id}/recheck", status_code=202, operation_id="recheck_provider")
async def recheck_provider(provider_id: str, change: Writer) -> Provider:
    """Run all checks of a provider again."""
    return await change.apply(
        Provider, lambda context: providers.recheck_provider(context, provider_id)
    )


@router.delete("/{provider_id}", status_code=202, operation_id="remove_provider")
async def remove_provider(provider_id: str, change: Writer, force: bool = False) -> Provider:
    """Remove a provider; a provider with regions only with `force`."""
    return await change.apply(
        Provider, lambda context: providers.remove_provider(context, provider_id, force=force)
    )
