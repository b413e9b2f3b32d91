"""The schemas of boot-drive requests."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from api.schemas.base import (
    Page,
    RequestBody,
    ResourceId,
    ResponseBody,
    without_control_characters,
)
from workflows.contracts.boot_drive_requests import BootDriveRequestStatus

MOST_DRIVES = 20


def _line(text: str) -> str:
    """Raises: ValueError, when the text is no line of an address."""
    if not text.strip():
        raise ValueError("is a line of the address, not an empty one")
    return without_control_characters(text).strip()


AddressLine = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_line)]
ParcelText = Annotated[
    str, Field(min_length=1, max_length=100), AfterValidator(without_control_characters)
]


class BootDriveRequestCreation(RequestBody):
    region_id: ResourceId
    """A region of machines you own."""
    count: Annotated[int, Field(ge=1, le=MOST_DRIVES)]
    """How many drives: one for each machine that starts from it."""
    ship_to: Annotated[list[AddressLine], Field(min_length=2, max_length=8)]
    """The lines of the postal address, with the name first and the country last. Only the account
    and administrators see them; they are removed 30 days after the request has ended."""


class BootDriveRequestRefusal(RequestBody):
    reason: Annotated[
        str, Field(min_length=1, max_length=500), AfterValidator(without_control_characters)
    ]
    """Why, for the account to read. It stays in the events, so name no address here."""


class BootDriveRequestShipment(RequestBody):
    carrier: ParcelText | None = None
    tracking: ParcelText | None = None
    """The carrier's number of the parcel."""


class BootDriveRequest(ResponseBody):
    id: str
    account_id: str
    region_id: str
    count: int
    ship_to: list[str] | None
    """null: the address was removed, because the request has ended long ago."""
    status: BootDriveRequestStatus
    status_reason: str | None
    """Why the request was refused."""
    carrier: str | None
    tracking: str | None
    created_at: datetime
    updated_at: datetime
    """When the status has changed last."""


class BootDriveRequestPage(Page[BootDriveRequest]):
    pass
