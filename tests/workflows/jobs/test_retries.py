"""A job that fails by itself is tried again, and one that has run long enough ends."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Machine, Run
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    at_running,
    exits,
    job_id_of,
    placed,
    reaches,
)
from tests.workflows.jobs.test_races import Gate, latest
from tests.workflows.jobs.test_restarts import placed_again, waits_again
from workflows.contracts.base import Contract
from workflows.contracts.jobs import Exit, NodeEnding, NodeUnreachable, WorkerExit
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, RunState
from workflows.jobs.job_lifecycle import JobLifecycle

FAILS = "worker 0: its command exited with status 3 (exited)"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.rules.jobs.retries.FIRST_PAUSE", timedelta(milliseconds=10))


async def ends_again(
    stage: Stage, handle: Handle, attempt: int, code: int, elapsed_s: float
) -> None:
    """The command of a later attempt ends."""
    ended = Exit(exit_code=code, elapsed_s=elapsed_s)
    run_id = f"{job_id_of(handle)}-0-{attempt}"
    for machine in stage.world.machines.values():
        if run_id in machine.runs:
            machine.runs[run_id] = Run(RunState.EXITED, 1, elapsed_s, ended)
    message = WorkerExit(worker=0, attempt=attempt, exit=ended)
    await handle.signal(JobLifecycle.worker_exited, message)


def recorded(stage: Stage, handle: Handle) -> JobChanges:
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    return changes


async def test_a_job_that_fails_is_tried_again_with_each_attempt_billed_and_its_log_kept(
    stage: Stage,
) -> None:
    handle = await stage.job(max_retries=2, max_restarts=0, state_interval_s=300)
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await waits_again(stage, handle, 2)
    assert stage.world.rows[job_id].status_reason == f"{FAILS}; retry 1 of 2"
    assert (recorded(stage, handle).retries, recorded(stage, handle).restarts) == (1, 0)
    await placed_again(stage, handle, 2, "nod-2")
    await ends_again(stage, handle, 2, code=0, elapsed_s=6)

    assert (await handle.result()).status is JobStatus.FINISHED
    assert stage.world.posted_s == {(job_id, 0, 1): 4, (job_id, 0, 2): 6}
    assert set(stage.world.logs) == {f"{job_id}-0-1", f"{job_id}-0-2"}
    assert stage.world.outputs == {f"{job_id}-0-2"}
    assert "job.state-restored" in stage.world.events[job_id]
    assert_nothing_left(stage, handle)


async def test_a_job_fails_when_it_was_tried_as_often_as_it_may_with_its_last_output(
    stage: Stage,
) -> None:
    handle = await stage.job(max_retries=1)
    await at_running(stage, handle)
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-2")
    await ends_again(stage, handle, 2, code=3, elapsed_s=6)
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert report.status_reason == f"{FAILS}; was tried again 1 time, which is the limit"
    assert stage.world.outputs == {f"{job_id_of(handle)}-0-2"}
    assert_nothing_left(stage, handle)


async def test_who_cancels_a_job_that_is_about_to_be_tried_again_is_heard(stage: Stage) -> None:
    handle = await stage.job(max_retries=5)
    await at_running(stage, handle)
    gate = Gate(stage, "discard_run_specs")
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await gate.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_nothing_left(stage, handle)


async def test_a_job_that_has_run_for_as_long_as_it_may_ends_billed_and_with_its_output(
    stage: Stage,
) -> None:
    handle = await stage.job(max_duration_s=1, max_retries=5)
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    stage.world.machines["nod-1"].runs[f"{job_id}-0-1"].elapsed_s = 1.5
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert report.status_reason == "has run for 1 s (safety.max_duration_s)"
    assert stage.world.posted_s == {(job_id, 0, 1): 1}
    assert stage.world.outputs == {f"{job_id}-0-1"}
    assert_nothing_left(stage, handle)


async def test_the_time_of_all_attempts_counts_and_waiting_does_not(stage: Stage) -> None:
    handle = await stage.job(max_duration_s=1000, max_retries=1)
    await at_running(stage, handle)
    await exits(stage, handle, 0, code=3, elapsed_s=999.4)
    await waits_again(stage, handle, 2)
    assert recorded(stage, handle).ran_s == 999
    await placed_again(stage, handle, 2, "nod-2")
    report = await handle.result()
    assert report.status_reason == "has run for 1000 s (safety.max_duration_s)"
    assert_nothing_left(stage, handle)


async def test_a_notebook_that_has_run_for_as_long_as_it_may_is_stopped(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK, max_duration_s=1)
    await placed(stage, handle)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert "safety.max_duration_s" in str(stage.world.rows[job_id_of(handle)].status_reason)
    assert_nothing_left(stage, handle)


async def test_a_job_that_is_not_tried_again_after_all_keeps_its_output(stage: Stage) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2, max_retries=5, unreachable_limit_s=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    stage.world.machines["nod-2"].reachable = False
    away = NodeUnreachable(node_id="nod-2", reason="no route")
    await handle.signal(JobLifecycle.node_unreachable, away)
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert "is not tried again" in str(report.status_reason)
    assert f"{job_id_of(handle)}-0-1" in stage.world.outputs


@pytest.mark.parametrize(
    ("asked", "then"), [("node_ending", "waiting_for_resources"), ("cancel", "canceled")]
)
async def test_a_failure_while_a_job_is_asked_to_leave_is_tried_again_and_to_end_not(
    stage: Stage, asked: str, then: str
) -> None:
    handle = await stage.job(max_retries=3)
    await at_running(stage, handle)

    async def is_away(_: Contract) -> None:
        raise ApplicationError("the database is away")

    stage.world.faults["record"] += [is_away] * 3
    gate = Gate(stage, "record")
    await exits(stage, handle, 0, code=3, elapsed_s=4)
    await gate.entered()
    message = NodeEnding(node_id="nod-1", reason="its lease ends")
    await handle.signal(asked, message if asked == "node_ending" else CANCEL)
    await handle.query("__stack_trace")  # It has heard of it by then.
    gate.open()
    await eventually(lambda: latest(stage, handle) == then, f"it is {then}")
    assert recorded(stage, handle).retries == (1 if asked == "node_ending" else 0)
