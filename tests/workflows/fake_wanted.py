"""What a person wants of each node of the fake world, as the rows say it."""

from dataclasses import dataclass, field

from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import FindWantedStatus, WantedStatusFound


@dataclass
class WantedStatuses:
    """The wanted status of each node with its revision, and the revision that it has followed."""

    wanted: dict[str, tuple[str, int]] = field(default_factory=dict)
    seen_revisions: dict[str, int] = field(default_factory=dict)

    def want(self, node_id: str, status: str) -> None:
        """Write what a person wants, as the API does; the wake goes by itself."""
        self.wanted[node_id] = (status, self.wanted.get(node_id, ("", 0))[1] + 1)

    def find_wanted_status(self, asked: FindWantedStatus) -> WantedStatusFound:
        status, revision = self.wanted.get(asked.node_id, ("", 0))
        if revision <= self.seen_revisions.get(asked.node_id, 0):
            return WantedStatusFound()
        return WantedStatusFound(status=NodeStatus(status), revision=revision)
