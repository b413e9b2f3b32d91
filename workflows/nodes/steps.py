"""The steps of a node: its status, which its lifecycle and its parts share, and its changes."""

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import Changes, HostChanges, NodeChanges
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.hosts.steps import HostSteps
from workflows.nodes.region import NodeRegion
from workflows.primitives.journal import Journal
from workflows.rules.nodes.onboarding import first_status_of


class NodeSteps(HostSteps[NodeStatus]):
    """The status of one node, and the steps by which it is recorded.

    region: of the node, which is refreshed when the status of its storage node changes.
    """

    def __init__(self, request: NodeRequest, journal: Journal, region: NodeRegion) -> None:
        resumed_from = request.resumed_from
        first = first_status_of(request.services, is_leased=request.machine is not None)
        super().__init__(
            request,
            journal,
            resumed_from.status if resumed_from else NodeStatus.NEW,
            resumed_from.resume_status if resumed_from else first,
            NodeStatus.OFFLINE,
        )
        self._region = region
        self.withheld = journal.reason if self.status is NodeStatus.MAINTENANCE else None

    def changes_of(self, changes: HostChanges) -> Changes:
        return changes if isinstance(changes, NodeChanges) else NodeChanges(**changes.known())

    async def write(
        self, *events: Event, changes: HostChanges | None = None, reason: str | None = None
    ) -> None:
        """Record a step with the present status."""
        await super().write(*events, changes=changes, reason=reason)
        await self._region.show(self.status)

    async def withhold(self, reason: str) -> None:
        """Take no jobs until a person has read the reason and activates the node."""
        if self.resume_status is NodeStatus.ACTIVE:
            self.resume_status, self.withheld = NodeStatus.MAINTENANCE, reason
            if self.status is NodeStatus.ACTIVE:
                self.status = NodeStatus.MAINTENANCE
            await self.write(Event(type=NodeEvent.MAINTENANCE, message=reason), reason=reason)

    async def put_off(self, reason: str) -> None:
        """Show why the node takes no jobs yet although a person wants that."""
        if self.reason != reason:
            self.withheld = reason
            await self.write(Event(type=NodeEvent.MAINTENANCE, message=reason), reason=reason)

    async def follow(self, wanted: NodeStatus, changes: HostChanges) -> None:
        """Switch to the status that a person wants."""
        self.status = self.resume_status = wanted
        self.withheld = None
        message = "takes jobs" if wanted is NodeStatus.ACTIVE else "takes no new jobs"
        await self.write(Event(type=NodeEvent(f"node.{wanted}"), message=message), changes=changes)
