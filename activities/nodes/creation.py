"""Adding nodes whose machines are leased."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from activities.db.tables import Node, Region
from activities.outbox.requests import create
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import NodeType


@dataclass(frozen=True, slots=True)
class LeasedNode:
    """A node that is to be added, with the claim of its machine."""

    node_id: str
    name: str
    type: NodeType
    services: tuple[str, ...]
    machine: MachineClaim
    fills_from: str | None = None
    """The storage node whose place it takes."""


def add_leased_node(
    session: Session, region: Region, wanted: LeasedNode, at: datetime
) -> tuple[Node, str]:
    """Add a leased node and the start of its workflow, in the caller's transaction.

    Returns the row, and the id of the outbox row to relay after the commit.
    """
    row = Node(
        id=wanted.node_id,
        account_id=region.account_id,
        name=wanted.name,
        region_id=region.id,
        minion_id="",
        type=wanted.type,
        services=sorted(wanted.services),
        machine=wanted.machine.model_dump(mode="json"),
        fills_from=wanted.fills_from,
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=at,
        updated_at=at,
    )
    return row, create(session, row)
