"""Boot-drive requests: their responses, and the changes of their status."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import boot_drive_requests as schemas
from api.services.account_limits import check_limit
from api.services.lifecycles import GONE
from api.services.ownership import own
from workflows.contracts.boot_drive_requests import (
    BootDriveRequestEvent,
    BootDriveRequestStatus,
)
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.counts import counted

NOUN = "boot-drive request"
_NEXT: Mapping[str, tuple[BootDriveRequestStatus, ...]] = {
    BootDriveRequestStatus.REQUESTED: (
        BootDriveRequestStatus.APPROVED,
        BootDriveRequestStatus.REFUSED,
        BootDriveRequestStatus.WITHDRAWN,
    ),
    BootDriveRequestStatus.APPROVED: (BootDriveRequestStatus.SHIPPED,),
    BootDriveRequestStatus.SHIPPED: (BootDriveRequestStatus.RECEIVED,),
}
"""To which statuses a request can go from each; a request in any other has ended."""


def boot_drive_request_response(row: tables.BootDriveRequest) -> schemas.BootDriveRequest:
    """The request as its account and administrators see it."""
    return schemas.BootDriveRequest(
        id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        count=row.drive_count,
        ship_to=row.ship_to,
        status=BootDriveRequestStatus(row.status),
        status_reason=row.status_reason,
        carrier=row.carrier,
        tracking=row.tracking,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def visible_boot_drive_request(
    session: Session, caller: Caller, request_id: str, *, locked: bool = False
) -> tables.BootDriveRequest:
    """A request of the account, or of any account for an administrator.

    locked: until the transaction ends.
    Raises: Problem `not-found`.
    """
    row = session.get(tables.BootDriveRequest, request_id, with_for_update=locked)
    if row is None or not (row.account_id == caller.account_id or caller.is_administrator):
        raise missing(NOUN, request_id)
    return row


def in_list(caller: Caller, *, all_accounts: bool) -> tuple[ColumnElement[bool], ...]:
    """The conditions for the requests of the account, or for those of all accounts.

    Raises: Problem `forbidden`, when a caller who is no administrator asks for all accounts.
    """
    if not all_accounts:
        return (col(tables.BootDriveRequest.account_id) == caller.account_id,)
    if not caller.is_administrator:
        raise Problem("forbidden", "all_accounts: this is for administrators")
    return ()


def create_boot_drive_request(
    context: ChangeContext, asked: schemas.BootDriveRequestCreation
) -> schemas.BootDriveRequest:
    """Ask for drives for a region of own machines.

    Raises: Problem `not-found`, when the region is not the account's; `conflict`, when it is being
    removed; `invalid-request`, when it is in a cloud; `limit-reached`.
    """
    region = own(context.session, tables.Region, asked.region_id, context.caller)
    _check_there(region)
    if traits_of(region.provider_kind).is_cloud:
        rule = "is a region of machines you own; those of a cloud start from its own images"
        raise invalid(field_error("region_id", rule, region.id))
    check_limit(context, tables.BootDriveRequest)
    row = tables.BootDriveRequest(
        id=new_id("bdr"),
        account_id=context.caller.account_id,
        region_id=region.id,
        drive_count=asked.count,
        ship_to=asked.ship_to,
        status=BootDriveRequestStatus.REQUESTED,
        created_at=context.now,
        updated_at=context.now,
    )
    context.session.add(row)
    context.session.flush()
    drives = counted(asked.count, "drive")
    by = f" by {context.caller.user_id}" if context.caller.user_id else ""
    details = {"count": asked.count, "region_id": region.id}
    _append_event(context, row, f"{drives} for region {region.name} requested{by}", details)
    return boot_drive_request_response(row)


def approve_boot_drive_request(context: ChangeContext, request_id: str) -> schemas.BootDriveRequest:
    """Promise the drives of a request. Raises: Problem `not-found`, `conflict`."""
    row = _found(context, request_id, BootDriveRequestStatus.APPROVED)
    _check_there(context.session.get_one(tables.Region, row.region_id))
    drives = counted(row.drive_count, "drive")
    return _moved(context, row, BootDriveRequestStatus.APPROVED, f"{drives} will be shipped")


def refuse_boot_drive_request(
    context: ChangeContext, request_id: str, asked: schemas.BootDriveRequestRefusal
) -> schemas.BootDriveRequest:
    """Refuse a request, with the reason. Raises: Problem `not-found`, `conflict`."""
    row = _found(context, request_id, BootDriveRequestStatus.REFUSED)
    row.status_reason = asked.reason
    message = f"the request was refused: {asked.reason}"
    return _moved(context, row, BootDriveRequestStatus.REFUSED, message)


def ship_boot_drive_request(
    context: ChangeContext, request_id: str, asked: schemas.BootDriveRequestShipment
) -> schemas.BootDriveRequest:
    """Say that the drives are on their way. Raises: Problem `not-found`, `conflict`."""
    row = _found(context, request_id, BootDriveRequestStatus.SHIPPED)
    row.carrier, row.tracking = asked.carrier, asked.tracking
    by = f" by {asked.carrier}" if asked.carrier else ""
    message = f"{counted(row.drive_count, 'drive')} shipped{by}"
    return _moved(context, row, BootDriveRequestStatus.SHIPPED, message)


def receive_boot_drive_request(context: ChangeContext, request_id: str) -> schemas.BootDriveRequest:
    """Say that the drives have come. Raises: Problem `not-found`, `conflict`."""
    row = _found(context, request_id, BootDriveRequestStatus.RECEIVED, of_account=True)
    return _moved(context, row, BootDriveRequestStatus.RECEIVED, "the drives have arrived")


def withdraw_boot_drive_request(
    context: ChangeContext, request_id: str
) -> schemas.BootDriveRequest:
    """Take a request back that nobody has decided. Raises: Problem `not-found`, `conflict`."""
    row = _found(context, request_id, BootDriveRequestStatus.WITHDRAWN, of_account=True)
    return _moved(context, row, BootDriveRequestStatus.WITHDRAWN, "the request was withdrawn")


def _check_there(region: tables.Region) -> None:
    """Raises: Problem `conflict`."""
    if region.status in GONE:
        raise Problem("conflict", f"region {region.name}: is {region.status}")


def _found(
    context: ChangeContext,
    request_id: str,
    wanted: BootDriveRequestStatus,
    *,
    of_account: bool = False,
) -> tables.BootDriveRequest:
    """The locked request, which can go to the wanted status.

    of_account: that of another account is not found, not even by an administrator.
    Raises: Problem `not-found`, `conflict`.
    """
    caller = context.caller
    row = visible_boot_drive_request(context.session, caller, request_id, locked=True)
    if of_account and row.account_id != caller.account_id:
        raise missing(NOUN, request_id)
    if row.account_id != caller.account_id:
        context.concerned_account_id = row.account_id
    allowed = _NEXT.get(row.status, ())
    if wanted not in allowed:
        may = f"can become {' or '.join(allowed)}" if allowed else "has ended"
        raise Problem(
            "conflict",
            f"{NOUN} {row.id}: is {row.status}, and {may}; asked to become {wanted}",
        )
    return row


def _moved(
    context: ChangeContext,
    row: tables.BootDriveRequest,
    status: BootDriveRequestStatus,
    message: str,
) -> schemas.BootDriveRequest:
    row.status, row.updated_at, row.sequence = status, context.now, row.sequence + 1
    context.session.add(row)
    details = {"reason": row.status_reason, "carrier": row.carrier}
    given = {name: value for name, value in details.items() if value is not None}
    _append_event(context, row, message, given)
    return boot_drive_request_response(row)


def _append_event(
    context: ChangeContext, row: tables.BootDriveRequest, message: str, details: dict[str, Any]
) -> None:
    """Add the event of the row's status; nothing in it says where the drives go."""
    # `record` takes the same lock, so that positions grow in the order of the commits.
    advisory_lock(context.session, f"events/{row.account_id}")
    context.session.add(
        tables.EventRow(
            id=new_id("evt"),
            account_id=row.account_id,
            resource_id=row.id,
            sequence=row.sequence,
            type=BootDriveRequestEvent(f"boot-drive-request.{row.status}"),
            message=message,
            details=details,
            at=context.now,
        )
    )
