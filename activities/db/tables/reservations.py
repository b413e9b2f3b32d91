"""Tables of reservations, and of the jobs that name them."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import index_where


class Reservation(SQLModel, table=True):
    """A hostname and a port of a region for one job at a time.

    A plain row, since nothing is asked of the world when it is made: the node of the job that holds
    it publishes the hostname. Which job that is, `Allocation.reservation_id` says.
    """

    __tablename__ = "reservations"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    region_id: str = Field(foreign_key="regions.id", index=True)
    name: str
    type: str
    hostname: str
    """One label, without its domain."""
    port: int
    created_at: datetime = Field(sa_type=Instant)
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        index_where(
            "removed_at IS NULL", "reservations_name_of_region", "region_id", "name", unique=True
        ),
        index_where(
            "removed_at IS NULL",
            "reservations_hostname_of_region",
            "region_id",
            "hostname",
            unique=True,
        ),
    )


class JobReservation(SQLModel, table=True):
    """A job names a reservation, from its submission on."""

    __tablename__ = "job_reservations"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    reservation_id: str = Field(foreign_key="reservations.id", index=True)
