"""The watch of a node, which is started anew whenever it ends and stopped before the machine."""

from temporalio import workflow

from workflows.contracts.nodes import WatchEnded
from workflows.effects.nodes import WatchNode, watch_node
from workflows.hosts.location import HostLocation


class NodeWatch:
    """The watch of one node; at most one activity of it runs."""

    def __init__(self, location: HostLocation) -> None:
        self._location = location
        self._handle: workflow.ActivityHandle[WatchEnded] | None = None

    def start(self) -> None:
        command = WatchNode(node=self._location.address(), boot_id=self._location.boot_id)
        self._handle = watch_node.start(command, summary="watch")

    @property
    def has_ended(self) -> bool:
        return self._handle is None or self._handle.done()

    async def end(self) -> None:
        """Await the end of the watch. Raises: its failure."""
        if self._handle is not None:
            await self._handle

    def stop(self) -> None:
        """Cancel the watch, which nobody awaits after that."""
        if self._handle is not None:
            self._handle.cancel()
