"""Marks beside logs: when bytes were stored, in both kinds of store."""

from pathlib import Path
from uuid import uuid4

import pytest

from activities.storage.blobs import blob_store
from activities.storage.log_times import LogTimes, Times
from activities.storage.logs import LogStore

RUN = "job-times-0-1"


class Clock:
    """A clock that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid4()}"


def test_a_mark_holds_from_its_offset_to_the_next(url: str) -> None:
    clock = Clock()
    times = LogTimes(url, clock)
    times.note(RUN, 0, 8)
    clock.now = 2_000.5
    times.note(RUN, 8, 16)
    found = LogTimes(url).read(RUN)
    assert [found.at_s(offset) for offset in (0, 7, 8, 99)] == [1_000, 1_000, 2_000.5, 2_000.5]
    assert [found.first_since(at) for at in (999, 1_001, 3_000)] == [0, 8, None]


def test_a_log_that_grows_all_the_time_gets_a_mark_for_each_interval(url: str) -> None:
    clock = Clock()
    times = LogTimes(url, clock)
    for length in range(1, 101):
        times.note(RUN, length - 1, length)
        clock.now += times.interval_s / 10
    assert len(LogTimes(url).read(RUN).offsets) == 10


def test_bytes_that_are_stored_again_keep_their_time(url: str) -> None:
    clock = Clock()
    times = LogTimes(url, clock)
    times.note(RUN, 0, 8)
    clock.now += 100
    times.note(RUN, 0, 8)
    assert times.read(RUN) == Times((0,), (1_000.0,))


def test_a_log_without_marks_has_no_times(url: str) -> None:
    found = LogTimes(url).read(RUN)
    assert (found.at_s(0), found.first_since(0)) == (None, None)


def test_marks_are_no_part_of_the_log_and_go_with_it(url: str) -> None:
    logs = LogStore(url)
    logs.append(RUN, 0, b"epoch 1\n")
    LogTimes(url, Clock()).note(RUN, 0, 8)
    assert (logs.length(RUN), logs.read(RUN, 0)) == (8, b"epoch 1\n")
    logs.delete("job-times")
    assert blob_store(url).names("logs/job-times") == []
    assert LogTimes(url).read(RUN) == Times()


def test_half_a_mark_at_the_end_of_a_file_is_passed_over(tmp_path: Path) -> None:
    times = LogTimes(f"file://{tmp_path}", Clock())
    times.note(RUN, 0, 8)
    (path,) = tmp_path.rglob("*.times")
    path.write_bytes(path.read_bytes() + b"half")
    assert times.read(RUN) == Times((0,), (1_000.0,))
