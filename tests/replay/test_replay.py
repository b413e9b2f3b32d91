"""Every recorded history is replayed by the workflows as they are now."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.replay.record import HISTORIES, STORIES
from workers.registry import WORKFLOWS, workflow_runner

RECORDED = sorted(HISTORIES.glob("*/*.json"))


JOBS = [path for path in RECORDED if path.stem.startswith("job_") and "data" not in path.stem]


async def assert_replays(name: str, history: str) -> None:
    replayer = Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )
    replayed = await replayer.replay_workflow(WorkflowHistory.from_json(name, history))
    assert replayed.replay_failure is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    await assert_replays(path.stem, await asyncio.to_thread(path.read_text))


@pytest.mark.parametrize("flag", ["awaits_data", "delivers_output"])
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
async def test_a_job_of_a_newer_api_that_an_older_worker_has_run_replays(
    path: Path, flag: str
) -> None:
    history = json.loads(await asyncio.to_thread(path.read_text))
    started = history["events"][0]["workflowExecutionStartedEventAttributes"]
    (payload,) = started["input"]["payloads"]
    request = {**json.loads(base64.b64decode(payload["data"])), flag: True}
    payload["data"] = base64.b64encode(json.dumps(request).encode()).decode()
    await assert_replays(path.stem, json.dumps(history))


def test_every_release_has_recorded_every_story() -> None:
    releases = {path.parent.name for path in RECORDED}
    assert releases
    names = {story.__name__ for story in STORIES}
    for release in releases:
        assert {path.stem for path in RECORDED if path.parent.name == release} <= names
