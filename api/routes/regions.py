"""Regions: the sites and cloud regions that nodes belong to."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from activities.db import tables
from activities.db.session import database
from activities.placement.wake import wake_placement
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.regions import Region, RegionChange, RegionCreation, RegionPage, RegionQuotaPage
from api.services import regions
from api.services.lifecycles import of_status
from api.services.ownership import own
from api.services.region_quotas import quotas_of_region, refusal_of
from workflows.contracts.statuses import RegionStatus

router = APIRouter(prefix="/v1/regions", tags=["regions"])
Reader = Annotated[Caller, Depends(Needs("regions:read"))]
Writer = Annotated[Change, changing("regions:write")]


@router.get("", operation_id="list_regions")
def list_regions(caller: Reader, paging: Paging, status: str | None = None) -> RegionPage:
    """The account's regions; archived ones only when asked for by status."""
    rows = select(tables.Region).where(
        tables.Region.account_id == caller.account_id,
        of_status(tables.Region, status, RegionStatus),
    )
    with database().read() as session:
        view = (col(tables.Region.id), lambda rows: regions.region_responses(session, rows))
        return page(session, RegionPage, rows, paging, view)


@router.post("", status_code=202, operation_id="create_region")
async def create_region(asked: RegionCreation, change: Writer) -> Region:
    """Create a region of a provider that is ready; a cloud region comes with a storage node."""
    refusal = await run_in_threadpool(refusal_of, change.caller, asked)
    return await change.apply(
        Region, lambda context: regions.create_region(context, asked, refusal)
    )


@router.get("/{region_id}", operation_id="get_region")
def get_region(region_id: str, caller: Reader) -> Region:
    with database().read() as session:
        return regions.region_response(session, own(session, tables.Region, region_id, caller))


@router.get("/{region_id}/quotas", operation_id="list_region_quotas")
def list_region_quotas(region_id: str, caller: Reader, paging: Paging) -> RegionQuotaPage:
    """The cloud's quotas for the region, read now; empty in a region of machines you own."""
    del paging
    return quotas_of_region(caller, region_id)


@router.patch("/{region_id}", status_code=202, operation_id="change_region")
async def change_region(region_id: str, asked: RegionChange, change: Writer) -> Region:
    """Change what other accounts may do in a region, or the worker of a region without nodes."""
    changed = await change.apply(
        Region, lambda context: regions.change_region(context, region_id, asked)
    )
    if asked.guest_policy is not None:
        wake_placement()  # Guests may have waited for it.
    return changed


@router.delete("/{region_id}", status_code=202, operation_id="remove_region")
async def remove_region(region_id: str, change: Writer, force: bool = False) -> Region:
    """Remove a region; a region with nodes only with `force`."""
    return await change.apply(
        Region, lambda context: regions.remove_region(context, region_id, force=force)
    )
