"""Logs grow at their offset: twice is once, a gap is refused, two writers are as good as one."""

import threading
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.storage.logs import LogGapError, LogStore

RUN = "job-1-0-1"


@pytest.fixture(params=["file", "memory"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    return LogStore(f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid4()}")


def test_a_log_is_what_was_appended_in_order(logs: LogStore) -> None:
    assert logs.append(RUN, 0, b"epoch 1\n") == 8
    assert logs.append(RUN, 8, b"epoch 2\n") == 16
    assert logs.read(RUN, 0) == b"epoch 1\nepoch 2\n"
    assert logs.read(RUN, 6, 4) == b"1\nep"
    assert logs.length(RUN) == 16


def test_a_run_without_a_log_has_none(logs: LogStore) -> None:
    assert logs.length(RUN) == 0
    assert logs.read(RUN, 0) == b""


def test_appending_twice_appends_once(logs: LogStore) -> None:
    logs.append(RUN, 0, b"abcdef")
    assert logs.append(RUN, 0, b"abcdef") == 6
    assert logs.append(RUN, 3, b"defghi") == 9
    assert logs.read(RUN, 0) == b"abcdefghi"


def test_a_gap_is_refused_and_says_where_to_go_on(logs: LogStore) -> None:
    logs.append(RUN, 0, b"abc")
    with pytest.raises(LogGapError, match=r"append at byte 5, stored 3") as refused:
        logs.append(RUN, 5, b"fg")
    assert refused.value.length == 3
    assert logs.read(RUN, 0) == b"abc"


def test_runs_of_one_job_are_kept_apart_and_deleted_together(logs: LogStore) -> None:
    logs.append("job-1-0-1", 0, b"first")
    logs.append("job-1-0-2", 0, b"second")
    logs.append("job-2-0-1", 0, b"other")
    logs.delete("job-1")
    assert logs.length("job-1-0-1") == logs.length("job-1-0-2") == 0
    assert logs.read("job-2-0-1", 0) == b"other"


def test_two_writers_of_the_same_bytes_leave_one_log(logs: LogStore) -> None:
    text = bytes(range(256)) * 40

    def write(step: int) -> None:
        sent = 0
        while sent < len(text):
            sent = logs.append(RUN, sent, text[sent : sent + step])

    writers = [threading.Thread(target=write, args=(step,)) for step in (173, 311, 997)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=30)
    assert b"".join(logs.stream(RUN)) == text


@given(
    pieces=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=30),
    offset=st.integers(0, 70),
    limit=st.integers(1, 70),
)
def test_any_order_of_appends_reads_as_a_prefix_of_the_source(
    pieces: list[tuple[int, int]], offset: int, limit: int
) -> None:
    logs = LogStore(f"memory://{uuid4()}")
    source = bytes(range(120))
    reached = 0
    for start, size in pieces:
        if start > reached:
            with pytest.raises(LogGapError):
                logs.append(RUN, start, source[start : start + size])
        else:
            reached = max(reached, start + size)
            assert logs.append(RUN, start, source[start : start + size]) == reached
    assert (
        logs.read(RUN, offset, limit) == source[offset : max(offset, min(reached, offset + limit))]
    )
