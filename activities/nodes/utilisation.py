"""The utilisation of nodes, as their watches have it in their heartbeats."""

import asyncio
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError

from activities.temporal.client import client
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.utilisation import NodeUtilisation
from workflows.effects.nodes import watch_node

LIMIT_S = 3.0
"""How long a reader waits; what has not come by then is left out."""
AT_ONCE = 16
KEPT_S = 5.0
MOST_KEPT = 4096
MOST_AGE = timedelta(seconds=60)
"""An older measurement is of a watch that has ended, or of a node that has no runs any more."""


class UtilisationReader:
    """The reader of one process, which asks Temporal of a node once in a few seconds."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, NodeUtilisation | None]] = {}

    async def of_nodes(self, node_ids: Collection[str]) -> dict[str, NodeUtilisation]:
        """What these nodes do, by their ids; a node of which nothing is known is left out."""
        if len(self._kept) > MOST_KEPT:
            self._kept.clear()
        since_s = time.monotonic() - KEPT_S
        new = [each for each in node_ids if self._kept.get(each, (0.0, None))[0] <= since_s]
        await self._ask(new)
        oldest = datetime.now(UTC) - MOST_AGE
        found = {each: self._kept.get(each, (0.0, None))[1] for each in node_ids}
        return {each: last for each, last in found.items() if last and last.at >= oldest}

    async def _ask(self, node_ids: Collection[str]) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(node_id: str) -> None:
            async with turns:
                found = await _last_of(node_id)
            self._kept[node_id] = time.monotonic(), found

        if not node_ids:
            return
        tasks = [asyncio.create_task(ask(each)) for each in node_ids]
        _, late = await asyncio.wait(tasks, timeout=LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _last_of(node_id: str) -> NodeUtilisation | None:
    try:
        found = await client().get_workflow_handle(workflow_id_of(node_id)).describe()
    except (RPCError, RuntimeError):
        return None
    return await _read(found)


async def _read(found: WorkflowExecutionDescription) -> NodeUtilisation | None:
    for pending in found.raw_description.pending_activities:
        if pending.activity_type.name != watch_node.name or not pending.heartbeat_details.payloads:
            continue
        payloads = list(pending.heartbeat_details.payloads)
        (details,) = await client().data_converter.decode(payloads[:1], [str])
        try:
            return NodeUtilisation.model_validate_json(details)
        except ValidationError:  # The progress of a verb, or what another release has written.
            return None
    return None


utilisation_reader = UtilisationReader()
