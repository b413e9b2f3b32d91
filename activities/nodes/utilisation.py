"""The utilisation of nodes, as their watches have it in their heartbeats."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionDescription

from activities.temporal.heartbeat_reader import HeartbeatReader, details_of
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.utilisation import NodeUtilisation
from workflows.effects.nodes import watch_node

MOST_AGE = timedelta(seconds=60)
"""An older measurement is of a watch that has ended, or of a node that has no runs any more."""


class UtilisationReader:
    """The reader of one process."""

    def __init__(self) -> None:
        self._heartbeats = HeartbeatReader(_read)

    async def of_nodes(self, node_ids: Collection[str]) -> dict[str, NodeUtilisation]:
        """What these nodes do, by their ids; a node of which nothing is known is left out."""
        asked = {workflow_id_of(node_id): node_id for node_id in node_ids}
        oldest = datetime.now(UTC) - MOST_AGE
        found = await self._heartbeats.of(asked)
        return {asked[each]: last for each, last in found.items() if last.at >= oldest}


async def _read(found: WorkflowExecutionDescription) -> NodeUtilisation | None:
    for details, *_ in await details_of(found, {watch_node.name}):
        try:
            return NodeUtilisation.model_validate_json(details)
        except ValidationError:  # The progress of a verb, or what another release has written.
            return None
    return None


utilisation_reader = UtilisationReader()
