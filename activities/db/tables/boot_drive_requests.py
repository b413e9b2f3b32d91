"""The table of boot-drive requests."""

from datetime import datetime

from sqlalchemy import JSON, Column, Text
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where


class BootDriveRequest(SQLModel, table=True):
    """The request of an account for drives from which machines of one of its regions start.

    A row with a status and no lifecycle, since nothing is asked of the world: people decide, pack
    and receive. `sequence` counts the changes of its status, each of which has its event.
    """

    __tablename__ = "boot_drive_requests"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    region_id: str = Field(foreign_key="regions.id", index=True)
    drive_count: int
    ship_to: list[str] | None = Field(sa_column=Column(JSON(none_as_null=True), nullable=True))
    """The lines of the postal address, which are personal data: for the account and administrators
    alone, in no event and no log. None: housekeeping has removed the address."""
    status: str
    status_reason: str | None = Field(default=None, sa_type=Text)
    """Why the request was refused."""
    carrier: str | None = None
    tracking: str | None = None
    """The carrier's number of the parcel, which leads to its address, and goes with it."""
    sequence: int = 0
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)
    """When the status has changed last."""
    __table_args__ = (
        index_where(
            "status IN ('requested', 'approved', 'shipped')",
            "boot_drive_requests_open_by_account",
            "account_id",
        ),
        index_where(
            "ship_to IS NOT NULL", "boot_drive_requests_with_address", "status", "updated_at"
        ),
    )
