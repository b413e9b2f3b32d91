"""`python -m tests.bench.empty ADDRESS`: a worker of workflows that do nothing, many times."""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from workers.registry import workflow_runner
from workflows.contracts.base import Contract, Done

QUEUE = "bench"
LIMIT = timedelta(minutes=10)


class EmptyRequest(Contract):
    """How many activities the workflow asks for, one after another."""

    activities: int
    local_activities: int


@activity.defn
async def nothing(_: Done) -> Done:
    return Done()


@workflow.defn
class Empty:
    """The least that a workflow with so many activities can be."""

    @workflow.run
    async def run(self, asked: EmptyRequest) -> Done:
        for _ in range(asked.local_activities):
            await workflow.execute_local_activity(nothing, Done(), start_to_close_timeout=LIMIT)
        for _ in range(asked.activities):
            await workflow.execute_activity(nothing, Done(), start_to_close_timeout=LIMIT)
        return Done()


async def main(address: str) -> None:
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    runner = workflow_runner()
    await Worker(
        client,
        task_queue=QUEUE,
        workflows=[Empty],
        activities=[nothing],
        workflow_runner=runner,
    ).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
