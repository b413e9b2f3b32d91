"""What a job takes with it from one attempt into the next, and what of an attempt stays behind."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.db import tables
from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.installation import JOB, Installation, installation
from tests.workflows.jobs.test_job_lifecycle import at_running, exits, job_id_of
from tests.workflows.jobs.test_restarts import TAKEN, placed_again, takes, waits_again
from workflows.contracts.base import Contract
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.jobs import EndRequest, Exit, WorkerExit
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus
from workflows.effects.billing import settle_usage
from workflows.jobs.job_lifecycle import JobLifecycle

__all__ = ["installation"]

EXITED = Exit(exit_code=0, elapsed_s=900)
USED = WorkerUsage(
    job_id=JOB, worker=0, attempt=1, started_at=datetime(2026, 3, 1, tzinfo=UTC), through_s=60
)
COUNTS: dict[str, Any] = {"attempt": 3, "restarts": 1, "retries": 1, "ran_s": 75}


async def test_an_exit_of_the_attempt_before_ends_nothing_of_this_one(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-1")
    late = WorkerExit(worker=0, attempt=1, exit=EXITED)
    await handle.signal(JobLifecycle.worker_exited, late)
    ended = Exit(exit_code=3, elapsed_s=5)
    await handle.signal(JobLifecycle.worker_exited, WorkerExit(worker=0, attempt=2, exit=ended))
    assert (await handle.result()).status is JobStatus.FAILED
    job_id = job_id_of(handle)
    assert stage.world.posted_s[job_id, 0, 2] == 5
    assert stage.world.events[job_id].count("job.worker-exited") == 1


async def test_a_placement_that_comes_late_gives_a_job_no_other_node(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    held = stage.world.held[job_id_of(handle)]
    withdrawn = stage.world.place(job_id_of(handle), nodes=("nod-2",))
    stage.world.held[job_id_of(handle)] = held
    await handle.signal(JobLifecycle.placed, withdrawn)
    removed = EndRequest(reason="is removed", code="node-removed", node_id="nod-2")
    await handle.signal(JobLifecycle.stop, removed)  # It is no node of this job.
    await exits(stage, handle, 0, code=0, elapsed_s=2)
    assert (await handle.result()).status is JobStatus.FINISHED
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 2}


async def test_usage_that_no_attempt_could_post_is_all_for_the_reconciliation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = dataclasses.replace(settle_usage, schedule_to_close_s=1)
    monkeypatch.setattr("workflows.jobs.teardown.settle_usage", limited)

    async def break_posting(_: Contract) -> None:
        raise ValueError("rates that nobody understands")

    handle = await stage.job()
    await at_running(stage, handle)
    stage.world.faults["post_usage"] += [break_posting] * 500
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-1")
    await handle.signal(JobLifecycle.worker_exited, WorkerExit(worker=0, attempt=2, exit=EXITED))
    assert (await handle.result()).status is JobStatus.FINISHED
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    left = [(usage.attempt, usage.through_s) for usage in changes.unsettled or ()]
    assert left == [(1, 0), (2, 900)]


def job_row(at: Installation) -> tables.Job:
    with at.database.read() as session:
        return session.get_one(tables.Job, JOB)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_continued", [False, True])
async def test_a_job_whose_workflow_is_another_run_keeps_what_its_row_counts(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, *, is_continued: bool
) -> None:
    at = installation
    if is_continued:
        # Only while it waits: a workflow that is long in every state would never get there.
        monkeypatch.setattr(
            "workflows.primitives.journal.is_long", lambda: len(at.world.events[JOB]) == 1
        )
        monkeypatch.setattr(
            "workflows.jobs.job_lifecycle.WAIT_INTERVAL", timedelta(milliseconds=50)
        )
    unsettled = [USED.model_dump(mode="json")]
    waiting = {"status": "waiting_for_resources", "sequence": 9, "unsettled": unsettled}
    handle = await at.start(JOB, **(COUNTS | waiting))
    if is_continued:
        first = handle.first_execution_run_id

        async def is_another_run() -> bool:
            return (await at.stage.client.get_workflow_handle(handle.id).describe()).run_id != first

        await eventually(is_another_run, "it has continued as new")
    await at.reaches(JOB, "waiting_for_resources")
    at.world.place(JOB, COUNTS["attempt"])
    await at.tell(JOB, "placed", at.world.held[JOB])
    await at.reaches(JOB, "running")
    row = job_row(at)
    assert {name: getattr(row, name) for name in COUNTS} == COUNTS
    assert [WorkerUsage.model_validate(one) for one in row.unsettled or ()] == [USED]
