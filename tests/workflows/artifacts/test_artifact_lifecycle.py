"""The lives of datasets, models, checkpoints and volumes, against a world with state."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_artifacts import CONTENT
from tests.workflows.jobs.test_races import Gate
from workflows.artifacts import artifact_lifecycle
from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts import errors, queues
from workflows.contracts.artifacts import (
    ArtifactReport,
    ArtifactRequest,
    ArtifactStatus,
    RetryTransfer,
    UploadComplete,
    UploadSource,
    WebSource,
)
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import ArtifactChanges
from workflows.contracts.removals import Removal, RemovalProgress

Handle = WorkflowHandle[Any, ArtifactReport]
DATASET = "dat-1"
WEB = WebSource(type="web", url="https://example.test/cats.tar")
REQUEST = ArtifactRequest(artifact_id=DATASET, account_id="acc-1", source=WEB)


async def start(stage: Stage, request: ArtifactRequest = REQUEST) -> Handle:
    return await stage.client.start_workflow(
        ArtifactLifecycle.run, request, id=f"dataset/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )


async def reaches(stage: Stage, status: str, artifact_id: str = DATASET) -> None:
    await eventually(
        lambda: stage.world.statuses[artifact_id][-1:] == [status], f"{artifact_id} is {status}"
    )


async def refuse(_: Contract) -> None:
    raise ApplicationError("its server answers 404", type=errors.REFUSED)


@pytest.mark.parametrize(
    ("artifact_id", "noun"),
    [("dat-1", "dataset"), ("mod-1", "model"), ("chk-1", "checkpoint"), ("vol-1", "volume")],
)
async def test_each_noun_is_transferred_and_removed_with_events_of_its_own(
    stage: Stage, artifact_id: str, noun: str
) -> None:
    handle = await start(stage, REQUEST.model_copy(update={"artifact_id": artifact_id}))
    await reaches(stage, "ready", artifact_id)
    changes = stage.world.rows[artifact_id].changes
    assert isinstance(changes, ArtifactChanges)
    assert (changes.noun, changes.content) == (noun, CONTENT)
    (said,) = (event.message for event in stage.world.rows[artifact_id].events)
    assert said == f"stored: 1 file, {CONTENT.unpacked_bytes} bytes"
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED
    assert stage.world.statuses[artifact_id] == ["transferring", "ready", "removing", "archived"]
    words = ("transferring", "ready", "removing", "archived")
    assert stage.world.events[artifact_id] == [f"{noun}.{word}" for word in words]
    assert stage.world.contents == {}


async def test_a_failed_transfer_says_why_and_is_tried_again_when_a_person_asks(
    stage: Stage,
) -> None:
    stage.world.faults["transfer_artifact"] = [refuse]
    handle = await start(stage)
    await reaches(stage, "failed")
    assert stage.world.rows[DATASET].status_reason == "its server answers 404"
    await handle.signal(ArtifactLifecycle.retry, RetryTransfer())
    await reaches(stage, "ready")
    assert stage.world.rows[DATASET].status_reason is None
    await handle.signal(ArtifactLifecycle.retry, RetryTransfer())  # Nothing is left to try.
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
    assert len(stage.world.transfers) == 1


async def test_an_upload_is_checked_when_its_parts_are_there(stage: Stage) -> None:
    handle = await start(stage, REQUEST.model_copy(update={"source": UploadSource(type="upload")}))
    await reaches(stage, "transferring")
    complete = UploadSource(type="upload", part_count=3)
    await handle.signal(ArtifactLifecycle.complete, UploadComplete(source=complete))
    await reaches(stage, "ready")
    assert [each.source for each in stage.world.transfers] == [complete]


async def test_an_upload_that_is_not_completed_fails_after_a_week(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "UPLOAD_LIMIT", timedelta(seconds=0.2))
    await start(stage, REQUEST.model_copy(update={"source": UploadSource(type="upload")}))
    await reaches(stage, "failed")
    assert "was not completed" in (stage.world.rows[DATASET].status_reason or "")
    assert stage.world.transfers == []


async def test_an_upload_that_is_completed_after_its_week_is_taken_by_a_retry(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "UPLOAD_LIMIT", timedelta(seconds=0.2))
    handle = await start(stage, REQUEST.model_copy(update={"source": UploadSource(type="upload")}))
    await reaches(stage, "failed")
    complete = UploadSource(type="upload", part_count=3)
    await handle.signal(ArtifactLifecycle.complete, UploadComplete(source=complete))
    await handle.signal(ArtifactLifecycle.retry, RetryTransfer())
    await reaches(stage, "ready")
    assert [each.source for each in stage.world.transfers] == [complete]


async def test_progress_is_told_with_rate_and_rest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "FIRST_PROGRESS_INTERVAL", timedelta(seconds=0.1))
    stage.world.looks_wanted = 2
    await start(stage)
    await reaches(stage, "ready")
    assert stage.world.told[DATASET]["dataset.progress"].startswith("1024 of 3072 bytes, 1 files")


async def test_a_removal_ends_the_transfer_first_and_leaves_nothing(stage: Stage) -> None:
    gate = Gate(stage, "transfer_artifact")
    handle = await start(stage)
    await gate.entered()
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED
    gate.open()
    assert stage.world.under_way["transfer_artifact"] == 0
    assert stage.world.contents == {}


async def test_a_transfer_goes_on_when_its_removal_is_refused(stage: Stage) -> None:
    gate = Gate(stage, "transfer_artifact")
    handle = await start(stage)
    await gate.entered()
    stage.world.dependents[DATASET].add("job-7")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await eventually(
        lambda: "dataset.removal-refused" in stage.world.events[DATASET], "it is refused"
    )
    assert set(stage.world.statuses[DATASET]) == {"transferring"}
    gate.open()
    await reaches(stage, "ready")
    assert (len(stage.world.transfers), stage.world.contents) == (1, {DATASET: CONTENT})
    stage.world.dependents[DATASET].clear()
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED


async def test_a_job_that_comes_while_the_transfer_is_interrupted_has_it_transferred_again(
    stage: Stage,
) -> None:
    gate, found = Gate(stage, "transfer_artifact"), Gate(stage, "find_dependents")
    handle = await start(stage)
    await gate.entered()
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await found.entered()
    again = Gate(stage, "find_dependents")
    found.open()
    await again.entered()
    stage.world.dependents[DATASET].add("job-7")
    again.open()
    gate.open()
    await reaches(stage, "ready")
    assert "failed" not in stage.world.statuses[DATASET]
    assert stage.world.contents == {DATASET: CONTENT}


async def test_what_a_job_uses_stays_as_it_was_and_its_jobs_are_counted(
    stage: Stage,
) -> None:
    handle = await start(stage)
    await reaches(stage, "ready")
    stage.world.dependents[DATASET].add("job-7")
    await handle.signal(ArtifactLifecycle.remove, Removal(force=True))
    await eventually(
        lambda: "dataset.removal-refused" in stage.world.events[DATASET], "it is refused"
    )
    assert stage.world.statuses[DATASET][-1] == "ready"
    said = stage.world.told[DATASET]["dataset.removal-refused"]
    assert said == "asked to be removed, is used by 1 job or device configuration: stays"
    assert stage.world.contents == {DATASET: CONTENT}
    stage.world.dependents[DATASET].clear()
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
    assert stage.world.contents == {}


async def test_a_content_that_cannot_be_removed_is_tried_again_and_says_why(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "REMOVAL_INTERVAL", timedelta(seconds=0.1))
    stage.world.faults["remove_content"] = [refuse]
    handle = await start(stage)
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED
    assert "could not be removed yet" in stage.world.told[DATASET]["dataset.removing"]
    assert stage.world.contents == {}


RESUMED: dict[str, dict[str, Any]] = {
    "transferring": {},
    "ready": {"content": CONTENT},
    "failed": {"resumed_reason": "its server answers 404"},
    "removing": {"removal": RemovalProgress(removal=Removal()), "content": CONTENT},
}


@pytest.mark.parametrize("status", RESUMED)
async def test_an_artifact_is_adopted_in_each_status(stage: Stage, status: str) -> None:
    update = {"resumed_status": ArtifactStatus(status), "sequence": 5, **RESUMED[status]}
    handle = await start(stage, REQUEST.model_copy(update=update))
    if status == "transferring":
        await reaches(stage, "ready")
        assert len(stage.world.transfers) == 1
    if status in ("ready", "failed"):
        found = await handle.query(ArtifactLifecycle.status)
        assert (found.status, found.status_reason) == (status, update.get("resumed_reason"))
        assert stage.world.transfers == []
    if status != "removing":
        await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED
    assert stage.world.rows[DATASET].sequence > 5


async def wait_for_slot(_: Contract) -> None:
    raise ApplicationError("waits: at most 3", type=errors.TRANSFER_WAITS, non_retryable=True)


async def test_a_transfer_waits_for_a_slot_of_its_account_and_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "FIRST_SLOT_INTERVAL", timedelta(seconds=0.1))
    stage.world.faults["transfer_artifact"] = [wait_for_slot, wait_for_slot]
    handle = await start(stage)
    await reaches(stage, "ready")
    assert stage.world.told[DATASET]["dataset.transferring"] == "waits: at most 3"
    assert stage.world.events[DATASET].count("dataset.transferring") == 2
    assert stage.world.rows[DATASET].status_reason is None
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_a_transfer_that_waits_is_removed_at_once(stage: Stage) -> None:
    stage.world.faults["transfer_artifact"] = [wait_for_slot]
    handle = await start(stage)
    await eventually(
        lambda: stage.world.told[DATASET].get("dataset.transferring") == "waits: at most 3",
        "it waits",
    )
    await handle.signal(ArtifactLifecycle.remove, Removal())
    assert (await handle.result()).status is ArtifactStatus.ARCHIVED


async def test_a_transfer_that_gets_no_slot_for_days_fails_with_that_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "SLOT_LIMIT", timedelta())
    stage.world.faults["transfer_artifact"] = [wait_for_slot]
    await start(stage)
    await reaches(stage, "failed")
    assert stage.world.rows[DATASET].status_reason == "waits: at most 3"
