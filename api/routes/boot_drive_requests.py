"""Boot-drive requests: accounts ask, administrators decide and ship, accounts receive."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlalchemy import ColumnElement
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


def _note(request: Request, caller: Caller, shown: Iterable[BootDriveRequest]) -> None:
    """Note that the postal addresses of other accounts are read."""
    read = [(each.account_id, each.id) for each in shown if each.ship_to is not None]
    request.app.state.reads.note_each(request, caller, read)


def _filters(
    caller: Reader,
    region_id: str | None = None,
    status: BootDriveRequestStatus | None = None,
    all_accounts: bool = False,
) -> list[ColumnElement[bool]]:
    """The conditions of a list."""
    table = tables.BootDriveRequest
    wanted = ((col(table.region_id), region_id), (col(table.status), status))
    return [
        *boot_drive_requests.in_list(caller, all_accounts=all_accounts),
        *(column == value for column, value in wanted if value is not None),
    ]


@router.get("", operation_id="list_boot_drive_requests")
def list_boot_drive_requests(
    request: Request,
    caller: Reader,
    paging: Paging,
    filters: Annotated[list[ColumnElement[bool]], Depends(_filters)],
) -> BootDriveRequestPage:
    """The account's requests; with `all_accounts`, for administrators, those of everybody."""
    table = tables.BootDriveRequest
    with database().read() as session:
        view = (col(table.id), each(boot_drive_requests.boot_drive_request_response))
        rows = select(table).where(*filters)
        found = page(session, BootDriveRequestPage, rows, paging, view)
    _note(request, caller, found.items)
    return found


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
def get_boot_drive_request(
    request: Request, boot_drive_request_id: str, caller: Reader
) -> BootDriveRequest:
    """A request of the account; an administrator sees those of all accounts."""
    with database().read() as session:
        row = boot_drive_requests.visible_boot_drive_request(session, caller, boot_drive_request_id)
        found = boot_drive_requests.boot_drive_request_response(row)
    _note(request, caller, [found])
    return found


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
