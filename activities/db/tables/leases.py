"""The table of leases."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Index,
)
from sqlmodel import Field

from activities.db.instants import Instant
from activities.db.tables.columns import LifecycleRow, json_column


class Lease(LifecycleRow, table=True):
    """A lease, committed before its machine is created; `name` is the name of the machine."""

    __tablename__ = "leases"
    region_id: str = Field(foreign_key="regions.id", index=True)
    provider_id: str = Field(foreign_key="providers.id", index=True)
    provider_kind: str
    holder_id: str = Field(index=True)
    offers: list[dict[str, Any]] = json_column()
    spec: dict[str, Any] = json_column()
    price_cap_microcredits_per_hour: int | None = Field(default=None, sa_type=BigInteger)
    deadline: datetime = Field(sa_type=Instant)
    offer: dict[str, Any] | None = json_column(nullable=True)
    provider_machine_id: str | None = None
    host: str | None = None
    port: int = 22
    user: str = "root"
    minion_id: str | None = None
    microcredits_per_hour: int | None = Field(default=None, sa_type=BigInteger)
    began_at: datetime | None = Field(default=None, sa_type=Instant)
    ended_at: datetime | None = Field(default=None, sa_type=Instant)
    earlier_microcredits: int = Field(default=0, sa_type=BigInteger)
    ending: dict[str, Any] | None = json_column(nullable=True)
    """Why the lease is being released, a `ReleaseProgress`; None: it is not."""
    __table_args__ = (
        Index("leases_name", "name", unique=True),
        Index("leases_by_status", "status"),
    )
