"""Volumes that a job writes to: stored while it runs and at its end, and by nobody else."""

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    job_id_of,
    placed,
    reaches,
)
from tests.workflows.jobs.test_races import STOP, latest
from tests.workflows.jobs.test_restarts import takes, waits_again
from tests.workflows.jobs.test_state_snapshots import NOTEBOOK, ends, places, running, told
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import Exit, MachineGone, WorkerExit
from workflows.contracts.statuses import JobStatus, JobType
from workflows.jobs.job_lifecycle import JobLifecycle

VOLUME = "vol-01jd0000000000000000000000"
WRITES: dict[str, Any] = {**NOTEBOOK, "volumes": (VOLUME,)}


def content(stage: Stage) -> int | None:
    """How many files the content of the volume has; None: nobody has written it."""
    found = stage.world.volume_contents.get(VOLUME)
    return found[1].file_count if found else None


async def writes(stage: Stage, handle: Handle, files: int) -> None:
    """Its command has written so many files, and they are stored."""
    stage.world.written[VOLUME] = files
    await eventually(lambda: content(stage) == files, f"{files} files are stored")


def refusing(message: str) -> Any:
    async def refuses(_: Contract) -> None:
        raise ApplicationError(message, type=errors.WORK_REFUSED, non_retryable=True)

    return refuses


async def test_what_is_written_is_stored_while_it_runs_and_once_more_when_it_stops(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",), **WRITES)
    await writes(stage, handle, 3)
    await writes(stage, handle, 5)
    events = stage.world.events[job_id_of(handle)]
    assert events.count("job.volume-stored") == 1, "each interval has an event"
    stage.world.faults["store_volume"] += [refusing("it is full")] * 3
    stage.world.written[VOLUME] = 7
    await eventually(lambda: "job.volume-not-stored" in events, "it is told")
    assert "it is full" in told(stage, handle, "job.volume-not-stored")
    assert content(stage) == 5
    stage.world.faults["store_volume"].clear()
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert content(stage) == 7
    assert "7 files" in told(stage, handle, "job.volume-stored")
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_what_was_written_is_stored_before_the_volume_is_let_go(stage: Stage) -> None:
    handle = await running(stage, "nod-1", leased=(), **WRITES)
    held: list[bool] = []

    async def looks(_: Contract) -> None:
        held.append(job_id_of(handle) in stage.world.held)

    stage.world.faults["store_volume"].append(looks)
    stage.world.faults["record_volume"].append(looks)
    stage.world.written[VOLUME] = 2
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert (await handle.result()).status is JobStatus.CANCELED
    assert (content(stage), held) == (2, [True, True])
    assert_nothing_left(stage, handle)


async def test_a_job_whose_machine_is_lost_leaves_what_was_stored_last_and_says_so(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",), **WRITES)
    await writes(stage, handle, 3)
    await eventually(lambda: "3 files" in told(stage, handle, "job.volume-stored"), "it is known")
    stage.world.faults["store_volume"] += [refusing("it is full")] * 20
    stage.world.written[VOLUME] = 9
    takes(stage, "nod-1")
    lost = MachineGone(node_id="nod-1", reason="it was preempted")
    await handle.signal(JobLifecycle.machine_gone, lost)
    await waits_again(stage, handle, 2)
    message = told(stage, handle, "job.volume-not-stored")
    assert f"volume {VOLUME}: keeps the content of 20" in message
    assert content(stage) == 3
    stage.world.faults["store_volume"].clear()
    await places(stage, handle, 2, "nod-2")
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert (await handle.result()).status is JobStatus.CANCELED


async def test_what_somebody_else_has_meanwhile_is_not_written_over(stage: Stage) -> None:
    handle = await running(stage, "nod-1", leased=(), **WRITES)
    stage.world.volume_writers[VOLUME] = ("job-other", 1)
    stage.world.written[VOLUME] = 2
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()
    assert content(stage) is None
    assert "job-other writes to it" in told(stage, handle, "job.volume-not-stored")


async def test_an_endpoint_whose_volume_could_not_be_stored_has_not_finished(
    stage: Stage,
) -> None:
    handle = await running(
        stage, "nod-1", leased=(), job_type=JobType.ENDPOINT, keeps_output=False, volumes=(VOLUME,)
    )
    stage.world.faults["store_volume"].append(refusing("has too many files"))
    message = WorkerExit(worker=0, attempt=1, exit=Exit(exit_code=0, elapsed_s=1))
    await handle.signal(JobLifecycle.worker_exited, message)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert "has too many files" in told(stage, handle, "job.volume-not-stored")
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_run_that_a_power_cut_has_taken_from_its_node_before_its_start_is_staged_again(
    stage: Stage, times: int
) -> None:
    async def cut(_: Contract) -> None:
        raise ApplicationError("is not on this node", type=errors.CONTENT_MISSING)

    stage.world.faults["start_worker"] += [cut] * times
    handle = await stage.job()
    await placed(stage, handle)
    await reaches(stage, handle, JobStatus.RUNNING)
    assert "is staged again: is not on this node" in told(stage, handle, "job.staging")
    assert await ends(stage, handle, 1) is JobStatus.FINISHED
    assert_nothing_left(stage, handle)


async def test_a_run_that_is_taken_from_its_node_again_and_again_fails(stage: Stage) -> None:
    async def cut(_: Contract) -> None:
        raise ApplicationError("is not on this node", type=errors.CONTENT_MISSING)

    stage.world.faults["start_worker"] += [cut] * 4
    handle = await stage.job()
    await placed(stage, handle)
    report = await asyncio.wait_for(handle.result(), 30)
    assert report.status is JobStatus.FAILED
    assert "is not on this node" in str(report.status_reason)
