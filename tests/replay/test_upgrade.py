"""A worker of the next release takes over while jobs run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.replay.next_release import NEW_STEP, PATCHED, UNPATCHED
from tests.replay.test_replay import RECORDED
from tests.workflows.conftest import Stage, at_work
from tests.workflows.fake_world import World
from tests.workflows.jobs.test_job_lifecycle import (
    assert_nothing_left,
    at_running,
    exits,
    job_id_of,
)
from workers.registry import workflow_runner
from workflows.contracts.statuses import JobStatus


@pytest_asyncio.fixture
async def stage(temporal_server: Client) -> AsyncIterator[Stage]:
    """A world without workers: the test has now these and now those at work."""
    yield Stage(temporal_server, World(client=temporal_server))


def replayer(workflows: tuple[type[object], ...]) -> Replayer:
    return Replayer(
        workflows=workflows,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )


async def test_a_running_job_goes_on_under_the_next_release(stage: Stage) -> None:
    async with at_work(stage.client, stage.world):
        before = await stage.job()
        await at_running(stage, before)
    async with at_work(stage.client, stage.world, PATCHED):
        await exits(stage, before, 0, code=0, elapsed_s=12)
        assert (await before.result()).status is JobStatus.FINISHED
        assert_nothing_left(stage, before)
        after = await stage.job()
        await at_running(stage, after)
        await exits(stage, after, 0, code=0, elapsed_s=12)
        assert (await after.result()).status is JobStatus.FINISHED
        assert_nothing_left(stage, after)
    events = stage.world.events
    assert events[job_id_of(before)].count(NEW_STEP) == 1, "what it had passed is not done again"
    assert events[job_id_of(after)].count(NEW_STEP) == 2
    for handle in (before, after):
        await replayer(PATCHED).replay_workflow(await handle.fetch_history())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_the_next_release_replays_what_was_recorded_before_it(path: Path) -> None:
    text = await asyncio.to_thread(path.read_text)
    recorded = WorkflowHistory.from_json(path.stem, text)
    assert (await replayer(PATCHED).replay_workflow(recorded)).replay_failure is None


async def test_a_change_without_a_patch_mark_is_found() -> None:
    path = next(path for path in RECORDED if path.stem == "job_finished")
    text = await asyncio.to_thread(path.read_text)
    with pytest.raises(workflow.NondeterminismError):
        await replayer(UNPATCHED).replay_workflow(WorkflowHistory.from_json(path.stem, text))
