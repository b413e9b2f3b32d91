"""Workflows whose workflow task fails again and again."""

from collections.abc import Sequence

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.worker import Worker

from tests.waiting import eventually

TRIES = 2
"""Of a workflow task in these tests; the second follows at once, later ones do not."""


@workflow.defn(dynamic=True)
class Broken:
    """Any workflow, as code that does not fit its history."""

    @workflow.run
    async def run(self, _: Sequence[RawValue]) -> None:
        raise RuntimeError("does not fit its history")


async def break_workflow(client: Client, workflow_id: str, task_queue: str) -> None:
    """Let the workflow task of a running workflow fail until it is tried so often."""
    handle = client.get_workflow_handle(workflow_id)

    async def is_tried() -> bool:
        found = await handle.describe()
        return found.raw_description.pending_workflow_task.attempt >= TRIES

    async with Worker(client, task_queue=task_queue, workflows=[Broken]):
        await eventually(is_tried, f"{workflow_id} is stuck")
