"""A step that could not be written down in time: the workflow goes on, and so does its replay."""

import asyncio

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import job_id_of
from workers.registry import WORKFLOWS, workflow_runner
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest
from workflows.jobs.job_lifecycle import JobLifecycle

LOCAL_TRIES = 3


async def test_a_step_that_ran_out_of_time_as_a_local_activity_replays(stage: Stage) -> None:
    """What the marker in the history holds is another failure than the one that was raised."""

    async def take_too_long(_: Contract) -> None:
        await asyncio.sleep(3)

    stage.world.faults["record"] += [take_too_long] * LOCAL_TRIES
    handle = await stage.job()
    await handle.signal(JobLifecycle.cancel, EndRequest(reason="changed my mind"))
    await handle.result()
    assert "job.canceled" in stage.world.events[job_id_of(handle)]
    assert not stage.world.faults["record"], "nothing ran out of time"
    replayer = Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )
    await replayer.replay_workflow(await handle.fetch_history())
