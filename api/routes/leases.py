"""Leases: the machines that cost money, with their costs."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.leases import Lease, LeasePage
from api.services import leases
from api.services.ownership import own
from workflows.contracts.statuses import LeaseStatus

router = APIRouter(prefix="/v1/leases", tags=["leases"])
Reader = Annotated[Caller, Depends(Needs("leases:read"))]
Writer = Annotated[Change, changing("leases:write")]


@router.get("", operation_id="list_leases")
def list_leases(
    caller: Reader,
    paging: Paging,
    status: LeaseStatus | None = None,
    provider_id: str | None = None,
    live: bool = False,
) -> LeasePage:
    """The account's leases; with `live`, only those whose machine may still cost money."""
    rows = select(tables.Lease).where(tables.Lease.account_id == caller.account_id)
    if status is not None:
        rows = rows.where(tables.Lease.status == status)
    if provider_id is not None:
        rows = rows.where(tables.Lease.provider_id == provider_id)
    if live:
        ended = [status for status in LeaseStatus if status.is_final]
        rows = rows.where(col(tables.Lease.status).not_in(ended))
    now = datetime.now(UTC)
    with database().read() as session:
        view = (
            col(tables.Lease.id),
            lambda rows: [leases.lease_response(row, now) for row in rows],
        )
        return page(session, LeasePage, rows, paging, view)


@router.get("/{lease_id}", operation_id="get_lease")
def get_lease(lease_id: str, caller: Reader) -> Lease:
    with database().read() as session:
        row = own(session, tables.Lease, lease_id, caller)
        return leases.lease_response(row, datetime.now(UTC))


@router.delete("/{lease_id}", status_code=202, operation_id="kill_lease")
async def kill_lease(lease_id: str, change: Writer) -> Lease:
    """Terminate the lease's machine, also while it runs a job; `released` says that it is gone."""
    return await change.apply(Lease, lambda context: leases.kill(context, lease_id))
