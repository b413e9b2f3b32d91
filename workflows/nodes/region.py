"""The region of a node, as the node signals to its workflow."""

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.contracts.base import Contract
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import NodeStatus

FOLLOWS_OWN = "a-region-follows-its-own-storage-node"
"""The patch since which a region is refreshed by a storage node that is nobody's lease."""


class NodeRegion:
    """The region of one node: told what concerns it. A signal that fails is logged, no more."""

    def __init__(self, request: NodeRequest) -> None:
        self._request = request
        self._shown: NodeStatus | None = None
        """The last status with which the region was refreshed."""

    @property
    def id(self) -> str:
        return self._request.region_id

    async def refresh(self) -> None:
        """Signal `refresh` to the region, which would otherwise poll its site within the hour."""
        await self._signal("refresh")

    async def ask_for_replacement(self) -> None:
        """Signal `replace` to the region, whose storage node this is."""
        node_id = self._request.node_id
        replacement = Replacement(requested_by=node_id, node_id=node_id)
        await self._signal("replace", replacement)

    async def show(self, status: NodeStatus) -> None:
        """Refresh the region when the status of its storage node changes."""
        if "storage" in self._request.services and status is not self._shown and self._is_told():
            self._shown = status
            await self.refresh()

    def _is_told(self) -> bool:
        """Whether the region follows this storage node; since the patch, that of any region."""
        return self._request.machine is not None or workflow.patched(FOLLOWS_OWN)

    async def _signal(self, signal: str, *arguments: Contract) -> None:
        region = workflow.get_external_workflow_handle(f"region/{self.id}")
        try:
            await region.signal(signal, args=arguments)
        except FailureError as failure:
            workflow.logger.warning("%s was not signalled %s: %s", region.id, signal, failure)
