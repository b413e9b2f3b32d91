"""The console of a node's machine, which shows whether the node takes jobs."""

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import ShowNodeStatus, show_node_status
from workflows.hosts.connection import raise_if_violated
from workflows.hosts.location import HostLocation
from workflows.nodes.steps import NodeSteps
from workflows.primitives.failures import EFFECT_FAILED, cause_of

SHOWS = "shows-its-status-on-its-console"
"""The patch since which a node shows its status on the console of its machine."""
SHOWN = (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE)


class NodeConsole:
    """The console of one node.

    shown: the status that it shows; None: none, or it is not known.
    """

    def __init__(self, request: NodeRequest, location: HostLocation, steps: NodeSteps) -> None:
        self._location = location
        self._steps = steps
        self.shown = request.resumed_from.shown_status if request.resumed_from else None
        self._failure = ""

    async def follow(self) -> None:
        """Show the node's status, if it is another one than before.

        A failure is recorded once, and changes nothing else: the next wake tries again.
        """
        status = self._steps.status
        if status is self.shown or status not in SHOWN or not workflow.patched(SHOWS):
            return
        try:
            await show_node_status(ShowNodeStatus(node=self._location.address(), status=status))
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            await self._record(cause_of(failure)[1])
        else:
            self.shown, self._failure = status, ""

    async def _record(self, failure: str) -> None:
        if failure != self._failure:
            self._failure = failure
            await self._steps.record_event(Event(type=NodeEvent.STATUS_NOT_SHOWN, message=failure))
