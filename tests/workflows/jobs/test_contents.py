"""The events that say how datasets, models and checkpoints come to the nodes of a job."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import CANCEL, Handle, job_id_of, placed
from tests.workflows.jobs.test_outage_hours import address
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import DataProgress, WorkerAssignment
from workflows.effects.jobs import ContentsBrought, WorkerStaged
from workflows.jobs import datastore_waits
from workflows.jobs.contents import staged_events, staging_event
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.jobs.worker import Worker


def worker(brought: ContentsBrought | None) -> Worker:
    found = Worker.placed("job-1", 1, WorkerAssignment(worker=0, node=address("nod-1")))
    found.staged = WorkerStaged(contents=brought)
    return found


def test_a_job_without_data_has_the_events_that_it_had() -> None:
    assert staging_event(0).message == "code, packages and input are being staged"
    assert staged_events([worker(None)]) == []


def test_the_begin_says_how_much_data_there_is() -> None:
    event = staging_event(1_200_000_000)
    assert "1.2 GB of datasets, models and checkpoints" in event.message
    assert event.details == {"data_bytes": 1_200_000_000}


@pytest.mark.parametrize(
    ("brought", "message"),
    [
        (
            ContentsBrought(bytes=3 * 10**9, fetched_bytes=10**9, seconds=10.0),
            "worker 0: 3.0 GB of data are on its node: 1.0 GB sent in 10.0 s, 100.0 MB a second",
        ),
        (
            ContentsBrought(bytes=2000, fetched_bytes=2000, cached_bytes=1500, seconds=1.0),
            (
                "worker 0: 2.0 kB of data are on its node: 2.0 kB sent in 1.0 s, 2.0 kB a second, "
                "1.5 kB of it by the region's cache"
            ),
        ),
        (
            ContentsBrought(bytes=3 * 10**9, fetched_bytes=0, seconds=0.1),
            "worker 0: 3.0 GB of data are on its node already",
        ),
    ],
)
def test_the_end_says_what_was_sent_how_fast_and_what_was_there(
    brought: ContentsBrought, message: str
) -> None:
    (event,) = staged_events([worker(brought)])
    assert (event.type, event.message) == ("job.data-staged", message)


PROGRESS = "job.data-progress"


async def holds(gate: asyncio.Event, _: Contract) -> None:
    await gate.wait()


async def signals(handle: Handle, sent: int, *, worker: int = 0, attempt: int = 1) -> None:
    progress = DataProgress(
        worker=worker,
        attempt=attempt,
        node_id=f"nod-{worker + 1}",
        at=datetime.now(UTC),
        bytes_transferred=sent,
        total_bytes=4 * 10**9,
        bytes_per_s=10**8,
    )
    await handle.signal(JobLifecycle.data_progress, progress)


async def away(_: Contract) -> None:
    raise ApplicationError("nas: no answer", type=errors.DATASTORE_AWAY)


async def test_progress_leaves_the_reason_for_which_the_job_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datastore_waits, "FIRST_PAUSE", timedelta(seconds=0.2))
    gate = asyncio.Event()
    stage.world.faults["stage_worker"] += [away, partial(holds, gate)]
    handle = await stage.job()
    events = stage.world.events[job_id_of(handle)]
    await placed(stage, handle)
    await eventually(lambda: "job.datastore-away" in events, "a share is away")
    await signals(handle, 10**9)
    await eventually(lambda: PROGRESS in events, "the progress is recorded")
    assert stage.world.rows[job_id_of(handle)].status_reason == "nas: no answer"
    gate.set()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()


async def test_progress_is_an_event_at_ever_longer_intervals_however_often_it_is_signalled(
    stage: Stage,
) -> None:
    gate = asyncio.Event()
    stage.world.faults["stage_worker"] += [partial(holds, gate)]
    handle = await stage.job()
    events = stage.world.events[job_id_of(handle)]
    await placed(stage, handle)
    await eventually(lambda: "job.staging" in events, "its data are on their way")
    await signals(handle, 10**9, attempt=2)
    await signals(handle, 10**9, worker=7)
    for number in range(20):
        await signals(handle, 10**9 + 1 + number)
    await eventually(lambda: PROGRESS in events, "the progress is recorded")
    gate.set()
    await eventually(lambda: "job.running" in events, "it runs")
    assert events.count(PROGRESS) == 1
    said = stage.world.told[job_id_of(handle)][PROGRESS]
    assert said == (
        "1.0 GB of 4.0 GB of data have come to 1 node, 100.0 MB a second, about 29 s left"
    )
    await signals(handle, 2 * 10**9)  # Late: nothing is staged any more.
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()
    assert events.count(PROGRESS) == 1
