"""A job whose datastore is away waits with that reason, up to a limit, and fails with it then."""

import asyncio
from datetime import timedelta

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
    placed,
    reaches,
)
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.statuses import JobStatus
from workflows.jobs import datastore_waits
from workflows.jobs.job_lifecycle import JobLifecycle

REASON = "nod-1: nfs://nas/lab: no answer for 45 s"


async def away(_: Contract) -> None:
    raise ApplicationError(REASON, type=errors.DATASTORE_AWAY)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that no test has to sit through."""
    monkeypatch.setattr(datastore_waits, "FIRST_PAUSE", timedelta(seconds=0.2))
    monkeypatch.setattr(datastore_waits, "LONGEST_PAUSE", timedelta(seconds=0.4))


async def test_a_job_waits_for_its_input_with_the_reason_and_then_runs(stage: Stage) -> None:
    stage.world.faults["stage_worker"] += [away, away]
    handle = await stage.job()
    await at_running(stage, handle)
    events = stage.world.events[job_id_of(handle)]
    assert events.count("job.datastore-away") == 1  # the same reason is told once
    assert REASON in stage.world.told[job_id_of(handle)]["job.datastore-away"]
    assert stage.world.rows[job_id_of(handle)].status_reason is None
    await exits(stage, handle, 0, code=0, elapsed_s=1)
    assert (await handle.result()).status == JobStatus.FINISHED


async def test_a_job_that_waits_too_long_fails_with_the_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.jobs.job_lifecycle.STAGING_LIMIT", timedelta(seconds=0.5))
    stage.world.faults["stage_worker"] += [away] * 20
    handle = await stage.job()
    await placed(stage, handle)
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.FAILED, REASON)
    assert stage.world.live_runs() == []
    assert job_id_of(handle) not in stage.world.held


async def test_a_job_that_waits_is_canceled_at_once(stage: Stage) -> None:
    stage.world.faults["stage_worker"] += [away] * 50
    handle = await stage.job()
    await placed(stage, handle)
    await eventually(
        lambda: "job.datastore-away" in stage.world.events[job_id_of(handle)], "it waits"
    )
    row = stage.world.rows[job_id_of(handle)]
    assert (row.status, row.status_reason) == (JobStatus.WAITING_FOR_DATA, REASON)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert (await handle.result()).status == JobStatus.CANCELED


async def test_an_output_waits_on_its_node_until_the_datastore_is_back(stage: Stage) -> None:
    handle: Handle = await stage.job()
    await at_running(stage, handle)
    back = asyncio.Event()

    async def away_until_back(command: Contract) -> None:
        if not back.is_set():
            await away(command)

    stage.world.faults["store_output"] += [away_until_back] * 50
    await exits(stage, handle, 0, code=0, elapsed_s=1)
    await eventually(
        lambda: "job.datastore-away" in stage.world.events[job_id_of(handle)], "it waits"
    )
    await reaches(stage, handle, JobStatus.UPLOADING)
    assert stage.world.machines["nod-1"].runs  # its files are kept there meanwhile
    back.set()
    assert (await handle.result()).status == JobStatus.FINISHED
    assert stage.world.outputs
    assert stage.world.machines["nod-1"].runs == {}


async def test_a_limit_counts_from_when_the_datastore_went_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy may take longer than the limit, and again after the datastore has come back."""
    monkeypatch.setattr(datastore_waits, "WORKED", timedelta(seconds=0.9))
    monkeypatch.setattr("workflows.jobs.job_lifecycle.STAGING_LIMIT", timedelta(seconds=0.5))

    async def away_after_a_while(command: Contract) -> None:
        await asyncio.sleep(1)
        await away(command)

    stage.world.faults["stage_worker"] += [away_after_a_while, away_after_a_while]
    handle = await stage.job()
    await at_running(stage, handle)
    assert stage.world.events[job_id_of(handle)].count("job.datastore-away") == 2
    await exits(stage, handle, 0, code=0, elapsed_s=1)
    assert (await handle.result()).status == JobStatus.FINISHED
