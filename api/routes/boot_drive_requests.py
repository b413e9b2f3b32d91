"""Boot-drive requests: accounts ask, administrators decide and ship, accounts receive."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.schemas.boot_drive_requests import (
    BootDriveRequest,
    BootDriveRequestCreation,
    BootDriveRequestPage,
    BootDriveRequestRefusal,
    BootDriveRequestShipment,
)
from api.services import boot_drive_requests
from workflows.contracts.boot_drive_requests import BootDriveRequestStatus
from workflows.rules.accounts.permissions import Verb

router = APIRouter(prefix="/v1/boot-drive-requests", tags=["boot-drive-requests"])
SCOPE = "boot-drive-requests:write"
Reader = Annotated[Caller, Depends(Needs("boot-drive-requests:read"))]
Writer = Annotated[Change, changing(SCOPE)]
Administration = Annotated[Change, changing(SCOPE, Verb.DECIDE)]


@router.get("", operation_id="list_boot_drive_requests")
def list_boot_drive_requests(
    caller: Reader,
    paging: Paging,
    region_id: str | None = None,
    status: BootDriveRequestStatus | None = None,
    all_accounts: bool = False,
) -> BootDriveRequestPage:
    """The account's requests; with `all_accounts`, for administrators, those of everybody."""
    table = tables.BootDriveRequest
    rows = select(table).where(*boot_drive_requests.in_list(caller, all_accounts=all_accounts))
    if region_id is not None:
        rows = rows.where(table.region_id == region_id)
    if status is not None:
        rows = rows.where(table.status == status)
    with database().read() as session:
        view = (col(table.id), each(boot_drive_requests.boot_drive_request_response))
        return page(session, BootDriveRequestPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_boot_drive_request")
async def create_boot_drive_request(
    asked: BootDriveRequestCreation, change: Writer
) -> BootDriveRequest:
    """Ask for drives from which machines of a region start; an administrator decides."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.create_boot_drive_request(context, asked),
    )


@router.get("/{boot_drive_request_id}", operation_id="get_boot_drive_request")
def get_boot_drive_request(boot_drive_request_id: str, caller: Reader) -> BootDriveRequest:
    """A request of the account; an administrator sees those of all accounts."""
    with database().read() as session:
        row = boot_drive_requests.visible_boot_drive_request(session, caller, boot_drive_request_id)
        return boot_drive_requests.boot_drive_request_response(row)


@router.post("/{boot_drive_request_id}/approve", operation_id="approve_boot_drive_request")
async def approve_boot_drive_request(
    boot_drive_request_id: str, change: Administration
) -> BootDriveRequest:
    """Promise the drives; the request must be `requested`."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.approve_boot_drive_request(
            context, boot_drive_request_id
        ),
    )


@router.post("/{boot_drive_request_id}/refuse", operation_id="refuse_boot_drive_request")
async def refuse_boot_drive_request(
    boot_drive_request_id: str, asked: BootDriveRequestRefusal, change: Administration
) -> BootDriveRequest:
    """Refuse with a reason, which the account reads; the request must be `requested`."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.refuse_boot_drive_request(
            context, boot_drive_request_id, asked
        ),
    )


@router.post("/{boot_drive_request_id}/ship", operation_id="ship_boot_drive_request")
async def ship_boot_drive_request(
    boot_drive_request_id: str, asked: BootDriveRequestShipment, change: Administration
) -> BootDriveRequest:
    """Say that the drives are on their way; the request must be `approved`."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.ship_boot_drive_request(
            context, boot_drive_request_id, asked
        ),
    )


@router.post("/{boot_drive_request_id}/receive", operation_id="receive_boot_drive_request")
async def receive_boot_drive_request(
    boot_drive_request_id: str, change: Writer
) -> BootDriveRequest:
    """Say that the drives have come; the request must be `shipped`."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.receive_boot_drive_request(
            context, boot_drive_request_id
        ),
    )


@router.post("/{boot_drive_request_id}/withdraw", operation_id="withdraw_boot_drive_request")
async def withdraw_boot_drive_request(
    boot_drive_request_id: str, change: Writer
) -> BootDriveRequest:
    """Take the request back; it must be `requested`."""
    return await change.apply(
        BootDriveRequest,
        lambda context: boot_drive_requests.withdraw_boot_drive_request(
            context, boot_drive_request_id
        ),
    )
