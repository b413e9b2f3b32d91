"""The events that say how datasets, models and checkpoints come to the nodes of a job."""

import pytest

from tests.workflows.jobs.test_outage_hours import address
from workflows.contracts.jobs import WorkerAssignment
from workflows.effects.jobs import ContentsBrought, WorkerStaged
from workflows.jobs.contents import staged_events, staging_event
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
