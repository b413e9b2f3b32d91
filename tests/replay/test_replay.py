"""Every recorded history is replayed by the workflows as they are now."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.replay.record import HISTORIES, STORIES
from workers.registry import WORKFLOWS, workflow_runner

RECORDED = sorted(HISTORIES.glob("*/*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )
    text = await asyncio.to_thread(path.read_text)
    replayed = await replayer.replay_workflow(WorkflowHistory.from_json(path.stem, text))
    assert replayed.replay_failure is None


def test_every_release_has_recorded_every_story() -> None:
    releases = {path.parent.name for path in RECORDED}
    assert releases
    names = {story.__name__ for story in STORIES}
    for release in releases:
        assert {path.stem for path in RECORDED if path.parent.name == release} <= names
