"""The wanted status of a node: requested by a person, read by the node's lifecycle."""

from temporalio import activity

from activities.db.session import database
from activities.db.tables import Node
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import FindWantedStatus, WantedStatusFound


def want(row: Node, status: NodeStatus) -> None:
    """Set the wanted status of a locked row; a repeated request counts as another one."""
    row.wanted_status, row.wanted_revision = status, row.wanted_revision + 1


@activity.defn
def find_wanted_status(command: FindWantedStatus) -> WantedStatusFound:
    """The wanted status of the node, if its lifecycle has not followed it yet."""
    with database().read() as session:
        row = session.get(Node, command.node_id)
    if row is None or row.wanted_status is None or row.wanted_revision <= row.seen_revision:
        return WantedStatusFound()
    return WantedStatusFound(status=NodeStatus(row.wanted_status), revision=row.wanted_revision)
