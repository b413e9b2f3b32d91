"""Every recorded history is replayed by the workflows as they are now."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.replay.record import HISTORIES, STORIES, impersonal
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


def test_the_newest_release_has_recorded_every_story_and_no_release_another_one() -> None:
    releases = {path.parent.name for path in RECORDED}
    names = {story.__name__ for story in STORIES}
    for release in releases:
        assert {path.stem for path in RECORDED if path.parent.name == release} <= names
    newest = max(releases, key=lambda release: [int(part) for part in release.split(".")])
    assert {path.stem for path in RECORDED if path.parent.name == newest} == names


def test_every_workflow_that_is_registered_has_a_recorded_history() -> None:
    begun = [json.loads(path.read_text())["events"][0] for path in RECORDED]
    types = {
        event["workflowExecutionStartedEventAttributes"]["workflowType"]["name"] for event in begun
    }
    registered = {kind.__temporal_workflow_definition.name for kind in WORKFLOWS}  # type: ignore[attr-defined]
    assert sorted(registered - types) == []


def test_no_history_tells_of_the_machine_that_it_was_recorded_on() -> None:
    trace = r'"stackTrace": "File \"/home/ada/x.py\", line 1\n", "identity": "7@ada"'
    assert impersonal(trace) == '"stackTrace": "", "identity": "worker"'
    for path in RECORDED:
        recorded = path.read_text()
        assert impersonal(recorded) == recorded, path.name
