"""The region of a node, as the node signals to its workflow."""

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.contracts.base import Contract
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import NodeStatus


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
        """Refresh a cloud region when the status of its storage node changes."""
        is_its_storage = self._request.machine is not None and "storage" in self._request.services
        if is_its_storage and status is not self._shown:
            self._shown = status
            await self.refresh()

    async def _signal(self, signal: str, *arguments: Contract) -> None:
        region = workflow.get_external_workflow_handle(f"region/{self.id}")
        try:
            await region.signal(signal, args=arguments)
        except FailureError as failure:
            workflow.logger.warning("%s was not signalled %s: %s", region.id, signal, failure)
