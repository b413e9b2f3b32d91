"""What the transfers of a job say in their heartbeats, read from a real server."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.jobs.data_progress import DataProgressReader
from activities.temporal.client import set_client
from tests.activities.watch_workflow import HoldStaging
from tests.waiting import eventually
from workers.registry import workflow_runner
from workflows.contracts.jobs import DataProgress, WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import StageWorker, WorkerStaged

QUEUE = "data-progress"
JOB = "job-01jd00000000000000000000p1"


def progress(worker: int, at: datetime) -> DataProgress:
    return DataProgress(
        worker=worker, attempt=1, node_id="nod-1", at=at, bytes_transferred=7, total_bytes=9
    )


async def test_what_each_worker_has_said_last_is_read_and_nothing_old_or_broken(
    temporal_server: Client,
) -> None:
    now = datetime.now(UTC)
    fresh = progress(1, now)
    figures = {
        "0": (), "1": (fresh.model_dump_json(),), "2": ("{}",),
        "3": (progress(3, now - timedelta(minutes=5)).model_dump_json(),),
    }  # fmt: skip

    @activity.defn(name="stage_worker")
    async def stage(asked: StageWorker) -> WorkerStaged:
        while True:
            activity.heartbeat("sending data", *figures[asked.run_id[-3]])
            await asyncio.sleep(0.1)

    set_client(temporal_server)
    node = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=1, minion_id="m")
    staging = [
        StageWorker(
            node=node,
            run_id=f"{JOB}-{worker}-1",
            run_spec="x",
            assignment=WorkerAssignment(worker=int(worker), node=node),
        )
        for worker in figures
    ]
    lives = Worker(
        temporal_server, task_queue=QUEUE, workflows=[HoldStaging],
        workflow_runner=workflow_runner(),
    )  # fmt: skip
    site = Worker(temporal_server, task_queue="site", activities=[stage])
    async with lives, site:
        handle = await temporal_server.start_workflow(
            HoldStaging.run, staging, id=f"job/{JOB}", task_queue=QUEUE
        )

        async def is_read() -> bool:
            return await DataProgressReader().of_jobs([JOB, "job-other"]) == {JOB: (fresh,)}

        await eventually(is_read, "the progress of the one worker is read", limit_s=20)
        assert await DataProgressReader().of_jobs(["job-other"]) == {}
        await handle.terminate()
