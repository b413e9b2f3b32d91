"""Datastores: shared folders of a region, which jobs read from and write to."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.datastores import Datastore, DatastoreCreation, DatastorePage
from api.services import datastores
from api.services.lifecycles import of_status
from api.services.ownership import own
from workflows.contracts.datastores import DatastoreStatus

router = APIRouter(prefix="/v1/datastores", tags=["datastores"])
Reader = Annotated[Caller, Depends(Needs("datastores:read"))]
Writer = Annotated[Change, changing("datastores:write")]


@router.get("", operation_id="list_datastores")
def list_datastores(
    caller: Reader, paging: Paging, status: str | None = None, region_id: str | None = None
) -> DatastorePage:
    """The account's datastores; archived ones only when asked for by status."""
    table = tables.Datastore
    rows = select(table).where(
        table.account_id == caller.account_id,
        of_status(table, status, DatastoreStatus),
    )
    if region_id is not None:
        rows = rows.where(table.region_id == region_id)
    with database().read() as session:
        view = (
            col(table.id),
            lambda rows: [datastores.datastore_response(row) for row in rows],
        )
        return page(session, DatastorePage, rows, paging, view)


@router.post("", status_code=202, operation_id="create_datastore")
async def create_datastore(asked: DatastoreCreation, change: Writer) -> Datastore:
    """Register a shared folder of a region that has an active node, which then checks it."""
    return await change.apply(
        Datastore, lambda context: datastores.create_datastore(context, asked)
    )


@router.get("/{datastore_id}", operation_id="get_datastore")
def get_datastore(datastore_id: str, caller: Reader) -> Datastore:
    with database().read() as session:
        return datastores.datastore_response(own(session, tables.Datastore, datastore_id, caller))


@router.delete("/{datastore_id}", status_code=202, operation_id="remove_datastore")
async def remove_datastore(datastore_id: str, change: Writer) -> Datastore:
    """Remove a datastore that no open job uses; the files on its server stay."""
    return await change.apply(
        Datastore, lambda context: datastores.remove_datastore(context, datastore_id)
    )
