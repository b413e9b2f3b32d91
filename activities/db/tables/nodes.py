"""Tables of nodes, and of the announcements of machines."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Index,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import RemovableRow, index_where, json_column


class Node(RemovableRow, table=True):
    __tablename__ = "nodes"
    region_id: str = Field(foreign_key="regions.id", index=True)
    minion_id: str
    """The SSH host key fingerprint; empty until the leased machine of the node has been created."""
    type: str = "permanent"
    services: list[str] = json_column()
    machine: dict[str, Any] | None = json_column(nullable=True)
    """The claim of the node's leased machine, a `MachineClaim`; None: an owner's machine."""
    upnp: bool = True
    mining: bool = False
    host: str | None = None
    port: int = 22
    user: str = "root"
    hardware: dict[str, Any] | None = json_column(nullable=True)
    requirements: list[dict[str, Any]] = json_column()
    preparation: dict[str, Any] | None = json_column(nullable=True)
    gpu_type: str | None = Field(default=None, index=True)
    gpu_count: int = 0
    cpu_count: int = 0
    memory_bytes: int = Field(default=0, sa_type=BigInteger)
    wanted_status: str | None = None
    """The status that a person wants, `active` or `maintenance`; None: nobody has asked."""
    wanted_revision: int = 0
    """How often a wanted status was requested."""
    seen_revision: int = 0
    """The revision that the lifecycle has followed; it leaves a status by itself afterwards."""
    reserved_cpu_count: int = 0
    reserved_memory_bytes: int = Field(default=0, sa_type=BigInteger)
    __table_args__ = (
        index_where(
            "status != 'archived' AND minion_id != ''", "nodes_minion_id", "minion_id", unique=True
        ),
        CheckConstraint("reserved_cpu_count >= 0", name="nodes_reserved_cpu"),
        CheckConstraint("reserved_memory_bytes >= 0", name="nodes_reserved_memory"),
        Index("nodes_by_status", "status", "region_id"),
    )


class NodeAnnouncement(SQLModel, table=True):
    """The announcement of a machine, before or after a person adds the machine as a node."""

    __tablename__ = "announcements"
    minion_id: str = Field(primary_key=True)
    host_public_key: str = Field(sa_type=Text)
    host: str
    port: int
    user: str = "root"
    first_at: datetime = Field(sa_type=Instant)
    last_at: datetime = Field(sa_type=Instant)
