"""What is left of a job after its end: its output, and machines that it says stay."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    at_running,
    exits,
    job_id_of,
    reaches,
)
from tests.workflows.jobs.test_races import Gate
from tests.workflows.nodes.test_leased_machine import CLAIM, leased
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest, WorkerIdle, run_id
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, NodeType
from workflows.effects.billing import settle_usage
from workflows.jobs.job_lifecycle import JobLifecycle


async def on_a_machine_of_its_own(stage: Stage, **safety: Any) -> Handle:
    handle = await stage.job(**safety)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    there = stage.world.place(job_id_of(handle))
    made = [place.model_copy(update={"ephemeral": True}) for place in there.assignments]
    await handle.signal(JobLifecycle.placed, there.model_copy(update={"assignments": tuple(made)}))
    await reaches(stage, handle, JobStatus.RUNNING)
    return handle


async def stayed(stage: Stage, handle: Handle) -> tuple[str, ...]:
    """The nodes that stay after the end of the job; people are told of them alone."""
    await handle.result()
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert changes.release
    told = "job.machine-stays" in stage.world.events[job_id_of(handle)]
    assert told is bool(changes.staying_nodes)
    return changes.staying_nodes


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("auto_terminate", [True, False])
async def test_a_machine_stays_after_a_job_that_has_finished_or_failed_where_it_says_so(
    stage: Stage, code: int, auto_terminate: bool
) -> None:
    handle = await on_a_machine_of_its_own(stage, auto_terminate=auto_terminate)
    await exits(stage, handle, 0, code=code, elapsed_s=1)
    assert await stayed(stage, handle) == (() if auto_terminate else ("nod-1",))


async def test_a_machine_does_not_stay_after_a_job_that_was_canceled(stage: Stage) -> None:
    handle = await on_a_machine_of_its_own(stage, auto_terminate=False)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert await stayed(stage, handle) == ()


async def test_a_machine_does_not_stay_after_a_job_that_did_nothing(stage: Stage) -> None:
    handle = await on_a_machine_of_its_own(stage, auto_terminate=False, idle_timeout_s=60)
    stage.world.machines["nod-1"].runs[f"{job_id_of(handle)}-0-1"].idle_s = 61
    idle = WorkerIdle(worker=0, attempt=1, idle_s=61)
    await handle.signal(JobLifecycle.worker_idle, idle)
    assert await stayed(stage, handle) == ()


async def test_a_node_that_was_made_for_a_job_ends_with_the_deadline_of_its_lease(
    stage: Stage,
) -> None:
    spec = CLAIM.spec.model_copy(update={"lifetime_s": 10})
    claim = CLAIM.model_copy(update={"spec": spec, "stays": True})
    handle = await leased(stage, NodeType.EPHEMERAL, claim)
    await eventually(lambda: "active" in stage.world.statuses["nod-1"], "its machine is there")
    report = await handle.result(rpc_timeout=timedelta(seconds=60))
    assert "the lease of its machine ends at " in str(report.status_reason)
    assert stage.world.cloud.machines == {}


async def test_a_job_whose_usage_cannot_be_posted_releases_its_machines_and_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = dataclasses.replace(settle_usage, schedule_to_close_s=1)
    monkeypatch.setattr("workflows.jobs.teardown.settle_usage", limited)
    handle = await stage.job()
    await at_running(stage, handle)

    async def break_posting(_: Contract) -> None:
        raise ValueError("rates that nobody understands")

    stage.world.faults["post_usage"] += [break_posting] * 50
    await exits(stage, handle, 0, code=0, elapsed_s=12)
    assert (await handle.result()).status is JobStatus.FINISHED
    job_id = job_id_of(handle)
    assert "job.billing-failed" in stage.world.events[job_id]
    assert job_id not in stage.world.held
    changes = stage.world.rows[job_id].changes
    assert isinstance(changes, JobChanges)
    assert [usage.through_s for usage in changes.unsettled or ()] == [12]


ENDS = {
    "canceled": (JobStatus.CANCELED, CANCEL),
    "idle": (JobStatus.FAILED, EndRequest(reason="no output for 60 s", code="idle")),
    "credits": (JobStatus.FAILED, EndRequest(reason="no credits", code="insufficient-credits")),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_job_that_is_ended_keeps_the_output_that_it_has_written(
    stage: Stage, end: str
) -> None:
    status, request = ENDS[end]
    handle = await stage.job()
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.cancel, request)
    assert (await handle.result()).status is status
    assert stage.world.outputs == {run_id(job_id_of(handle), 0, 1)}
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert changes.output_bytes == 7
    assert "job.stored" in stage.world.events[job_id_of(handle)]


async def test_who_discards_the_output_gets_the_log_alone(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.cancel, CANCEL.model_copy(update={"discards": True}))
    assert (await handle.result()).status is JobStatus.CANCELED
    assert stage.world.outputs == set()
    assert stage.world.logs == {run_id(job_id_of(handle), 0, 1)}


@pytest.mark.parametrize("effect", ["collect_log", "store_output", "clean_worker"])
async def test_who_discards_an_output_while_the_job_is_ending_keeps_the_log_alone(
    stage: Stage, effect: str
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    gate = Gate(stage, effect)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await gate.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL.model_copy(update={"discards": True}))
    await handle.query("status")  # It is answered after all that its workflow was told before.
    gate.open()  # What was begun is done in spite of the news.
    assert (await handle.result()).status is JobStatus.CANCELED
    assert stage.world.outputs == set()
    assert stage.world.logs == {run_id(job_id_of(handle), 0, 1)}
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert not changes.output_bytes
    assert "output" not in stage.world.told[job_id_of(handle)]["job.stored"]


async def test_a_notebook_that_is_stopped_keeps_its_output(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK)
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.stop, CANCEL)
    await reaches(stage, handle, JobStatus.STOPPED)
    assert stage.world.outputs == {run_id(job_id_of(handle), 0, 1)}


async def test_who_discards_the_output_of_a_stopped_notebook_leaves_none(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK)
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.stop, CANCEL)
    await reaches(stage, handle, JobStatus.STOPPED)
    await handle.signal(JobLifecycle.cancel, CANCEL.model_copy(update={"discards": True}))
    assert (await handle.result()).status is JobStatus.CANCELED
    assert stage.world.outputs == set()
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert changes.output_bytes == 0


async def test_the_log_of_a_job_counts_also_where_its_output_cannot_be_stored(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)

    async def refuses(_: Contract) -> None:
        raise ApplicationError("too many files", type=errors.WORK_REFUSED, non_retryable=True)

    stage.world.faults["store_output"].append(refuses)
    await exits(stage, handle, 0, code=0, elapsed_s=12)
    assert (await handle.result()).status is JobStatus.FAILED
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert (changes.log_bytes, changes.output_bytes) == (1, None)
