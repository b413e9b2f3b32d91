"""Adding a node whose machine is to be leased for it."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from activities.db.tables import Node, Region
from activities.outbox.requests import create
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import NodeType


@dataclass(frozen=True, slots=True)
class LeasedNode:
    """A node to be added, and the machine that it is to have."""

    node_id: str
    name: str
    type: NodeType
    services: tuple[str, ...]
    machine: MachineClaim


def add_leased_node(
    session: Session, region: Region, asked: LeasedNode, at: datetime
) -> tuple[Node, str]:
    """Its row, and the request that starts its workflow, in the caller's transaction.

    The request's id comes with it, to be relayed after the commit.
    """
    row = Node(
        id=asked.node_id,
        account_id=region.account_id,
        name=asked.name,
        region_id=region.id,
        minion_id="",
        type=asked.type,
        services=sorted(asked.services),
        machine=asked.machine.model_dump(mode="json"),
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=at,
        updated_at=at,
    )
    return row, create(session, row)
