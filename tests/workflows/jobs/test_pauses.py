"""The pause before a retry: the job holds nothing, hears everybody, and outlives its workflow."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from tests.waiting import eventually
from tests.workflows.conftest import Stage, at_work
from tests.workflows.fake_world import World
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    at_running,
    exits,
    job_id_of,
)
from tests.workflows.jobs.test_races import STOP, Gate, latest
from tests.workflows.jobs.test_restarts import TAKEN, attempt_of, placed_again, takes, waits_again
from tests.workflows.jobs.test_retries import FAILS, ends_again, recorded
from tests.workflows.time_skipping import skipping_clock
from workers.client import ensure_search_attributes
from workers.registry import WORKFLOWS, workflow_runner
from workflows.contracts.statuses import JobStatus, JobType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.jobs.termination import Termination


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that no test can wait for."""
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"workflows.rules.jobs.retries.{name}", timedelta(hours=1))


def retry_at(stage: Stage, handle: Handle) -> datetime | None:
    return recorded(stage, handle).retry_at


async def pauses(stage: Stage, handle: Handle) -> None:
    await eventually(lambda: retry_at(stage, handle) is not None, f"{handle.id} pauses")


async def pausing(stage: Stage, job_type: JobType = JobType.TRAINING) -> Handle:
    """A job that pauses before its first retry."""
    handle = await stage.job(job_type, max_retries=3)
    await at_running(stage, handle)
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await pauses(stage, handle)
    assert_nothing_left(stage, handle)
    return handle


@pytest_asyncio.fixture
async def clock() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose clock skips ahead while workflows wait."""
    async with skipping_clock() as environment:
        await ensure_search_attributes(environment.client)
        yield environment


async def test_each_pause_is_twice_as_long_and_holds_and_costs_nothing(
    clock: WorkflowEnvironment,
) -> None:
    stage = Stage(clock.client, World(client=clock.client))
    async with at_work(clock.client, stage.world):
        handle = await pausing(stage)
        job_id = job_id_of(handle)
        for retry, pause_s in ((1, 10), (2, 20), (3, 40)):
            row = stage.world.rows[job_id]
            ends_at = retry_at(stage, handle)
            assert ends_at is not None
            assert (ends_at - row.at).total_seconds() == pytest.approx(pause_s, abs=1)
            assert row.status == JobStatus.WAITING_FOR_RESOURCES
            assert row.status_reason == f"{FAILS}; waits {pause_s} s before retry {retry} of 3"
            assert stage.world.events[job_id][-1] == "job.restarting"
            assert (attempt_of(stage, handle), recorded(stage, handle).retries) == (retry, retry)
            assert job_id not in stage.world.held
            await clock.sleep(timedelta(seconds=pause_s - 3))
            assert attempt_of(stage, handle) == retry, "it pauses still"
            await clock.sleep(timedelta(seconds=5))
            await waits_again(stage, handle, retry + 1)
            assert stage.world.rows[job_id].status_reason == f"{FAILS}; retry {retry} of 3"
            assert retry_at(stage, handle) is None
            await placed_again(stage, handle, retry + 1, f"nod-{retry + 1}")
            await ends_again(stage, handle, retry + 1, code=3, elapsed_s=5)
            if retry < 3:
                await pauses(stage, handle)
        report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert report.status_reason == f"{FAILS}; was tried again 3 times, which is the limit"
    assert stage.world.posted_s == {
        (job_id, 0, attempt): 4 if attempt == 1 else 5 for attempt in (1, 2, 3, 4)
    }
    assert_nothing_left(stage, handle)


@pytest.mark.usefixtures("long_pauses")
@pytest.mark.parametrize("signal", ["cancel", "remove", "temporal"])
async def test_who_ends_a_job_in_its_pause_is_heard_at_once(stage: Stage, signal: str) -> None:
    handle = await pausing(stage)
    if signal == "cancel":
        await handle.signal(JobLifecycle.cancel, CANCEL)
    elif signal == "remove":
        await handle.signal(JobLifecycle.remove)
    else:
        await handle.cancel()
    report = await handle.result()
    assert report.status is (JobStatus.ARCHIVED if signal == "remove" else JobStatus.CANCELED)
    assert retry_at(stage, handle) is None
    assert JobStatus.PROVISIONING not in stage.world.statuses[job_id_of(handle)][3:]
    assert_nothing_left(stage, handle)


@pytest.mark.usefixtures("long_pauses")
async def test_a_notebook_is_stopped_in_its_pause_and_started_again_without_one(
    stage: Stage,
) -> None:
    handle = await pausing(stage, JobType.NOTEBOOK)
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert retry_at(stage, handle) is None
    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 3)
    assert recorded(stage, handle).retries == 0, "a person has started it"


@pytest.mark.usefixtures("long_pauses")
@pytest.mark.parametrize("is_canceled", [False, True])
async def test_the_last_request_holds_where_a_notebook_is_stopped_and_started_in_its_pause(
    stage: Stage, *, is_canceled: bool
) -> None:
    handle = await pausing(stage, JobType.NOTEBOOK)
    gate = Gate(stage, "discard_run_specs")
    await handle.signal(JobLifecycle.stop, STOP)
    await gate.entered()
    await handle.signal(JobLifecycle.start_again)
    if is_canceled:
        await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()
    if is_canceled:
        assert (await handle.result()).status is JobStatus.CANCELED
    else:
        await waits_again(stage, handle, 3)
    assert retry_at(stage, handle) is None


@pytest.mark.usefixtures("long_pauses")
async def test_a_person_may_end_the_pause(stage: Stage) -> None:
    handle = await pausing(stage)
    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 2)
    assert (retry_at(stage, handle), recorded(stage, handle).retries) == (None, 1)
    await placed_again(stage, handle, 2, "nod-2")
    await ends_again(stage, handle, 2, code=0, elapsed_s=6)
    assert (await handle.result()).status is JobStatus.FINISHED


@pytest.mark.usefixtures("long_pauses")
async def test_a_pause_goes_on_when_the_workflow_continues_as_new(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await stage.job(max_retries=3)
    await at_running(stage, handle)
    monkeypatch.setattr(
        "workflows.primitives.journal.is_long",
        lambda: workflow.info().get_current_history_length() > 10,
    )
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await pauses(stage, handle)
    ends_at = retry_at(stage, handle)
    newest: Handle = stage.client.get_workflow_handle(handle.id)

    async def continued() -> bool:
        return (await newest.describe()).run_id != handle.first_execution_run_id

    await eventually(continued, "it continues as new")
    report = await newest.query(JobLifecycle.status)
    assert report.status is JobStatus.WAITING_FOR_RESOURCES
    assert (retry_at(stage, handle), attempt_of(stage, handle)) == (ends_at, 1)
    await newest.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 2)
    assert (retry_at(stage, handle), recorded(stage, handle).retries) == (None, 1)


@pytest.mark.usefixtures("long_pauses")
async def test_a_pause_goes_on_under_another_worker_process(temporal_server: Client) -> None:
    stage = Stage(temporal_server, World(client=temporal_server))
    async with at_work(temporal_server, stage.world):
        handle = await pausing(stage)
        ends_at = retry_at(stage, handle)
    async with at_work(temporal_server, stage.world):
        await handle.query(JobLifecycle.status)
        assert (retry_at(stage, handle), attempt_of(stage, handle)) == (ends_at, 1)
        await handle.signal(JobLifecycle.start_again)
        await waits_again(stage, handle, 2)
        assert recorded(stage, handle).retries == 1
        await handle.signal(JobLifecycle.cancel, CANCEL)
        await handle.result()


@pytest.mark.usefixtures("long_pauses")
async def test_a_lost_machine_is_no_reason_to_pause(stage: Stage) -> None:
    handle = await stage.job(max_retries=3)
    await at_running(stage, handle)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert recorded(stage, handle).retries == 0


async def test_a_job_that_was_tried_again_before_there_were_pauses_replays(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Termination, "plan_pause", lambda _: None)
        handle = await stage.job(max_retries=1)
        await at_running(stage, handle)
        await exits(stage, handle, 0, code=3, elapsed_s=4)
        await waits_again(stage, handle, 2)
        await handle.signal(JobLifecycle.cancel, CANCEL)
        await handle.result()
    history = await handle.fetch_history()
    replayer = Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )
    replayed = await asyncio.wait_for(replayer.replay_workflow(history), 60)
    assert replayed.replay_failure is None
