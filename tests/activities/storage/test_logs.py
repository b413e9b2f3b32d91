"""Logs grow at their offset: twice is once, a gap is refused, two writers are as good as one."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.storage import logs as module
from activities.storage.blobs import BlobStore
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


@pytest.fixture(params=["file", "chunks"])
def short_logs(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """Logs of which 10 bytes are stored."""
    url = f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid4()}"
    return LogStore(url, max_bytes=10)


def test_a_log_beyond_its_limit_is_cut_and_one_line_says_so(short_logs: LogStore) -> None:
    tail: int | None = None
    for offset in range(0, 60, 6):
        tail = short_logs.append(RUN, offset, b"abcdef", tail)
    stored = b"".join(short_logs.stream(RUN))
    assert stored.startswith(b"abcdefabcd\n[baseload] the log is cut here: 10 bytes")
    assert stored.endswith(b"(BASELOAD_RUN_LOG_MAX_BYTES)\n")
    assert stored.count(b"[baseload]") == 1
    assert tail == len(stored)


@pytest.mark.parametrize("offset", [0, 7, 10, 30, 10**18])
def test_nothing_is_added_to_a_log_that_is_cut(short_logs: LogStore, offset: int) -> None:
    length = short_logs.append(RUN, 0, b"x" * 11)
    assert short_logs.append(RUN, offset, b"more than ten bytes") == length
    assert short_logs.length(RUN) == length


def test_a_log_of_just_its_limit_is_whole(short_logs: LogStore) -> None:
    short_logs.append(RUN, 0, b"x" * 10)
    assert b"".join(short_logs.stream(RUN)) == b"x" * 10


def test_a_gap_beyond_the_limit_is_a_gap(short_logs: LogStore) -> None:
    short_logs.append(RUN, 0, b"abc")
    with pytest.raises(LogGapError) as refused:
        short_logs.append(RUN, 11, b"x")
    assert refused.value.length == 3


def test_writers_who_cut_a_log_at_once_leave_one_line(tmp_path: Path) -> None:
    logs = LogStore(f"file://{tmp_path}", max_bytes=1000)
    text = bytes(range(256)) * 40

    def write(step: int) -> None:
        for sent in range(0, len(text), step):
            logs.append(RUN, sent, text[sent : sent + step])

    writers = [threading.Thread(target=write, args=(step,)) for step in (173, 311, 997)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=30)
    stored = b"".join(logs.stream(RUN))
    assert stored[:1000] == text[:1000]
    assert stored[1000:].count(b"\n") == 2


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


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> LogStore:
    """A store of objects with small parts."""
    monkeypatch.setattr(module, "PART_BYTES", 64)
    monkeypatch.setattr(module, "FOLD_CHUNKS", 8)
    return LogStore(f"memory://{uuid4()}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each method of the object store is called."""
    counted: Counter[str] = Counter()
    for name in ("names", "put", "delete_all", "get_all", "get_range"):
        monkeypatch.setattr(BlobStore, name, _counting(name, getattr(BlobStore, name), counted))
    return counted


def _counting(name: str, method: Any, counted: Counter[str]) -> Any:
    def count(*given: Any) -> Any:
        counted[name] += 1
        return method(*given)

    return count


def test_a_writer_that_knows_the_end_appends_without_listing(calls: Counter[str]) -> None:
    logs = LogStore(f"memory://{uuid4()}")
    tail = logs.length(RUN)
    calls.clear()
    for number in range(module.FOLD_CHUNKS - 1):
        tail = logs.append(RUN, tail, f"line {number}\n".encode(), tail)
    assert calls == {"put": module.FOLD_CHUNKS - 1}
    written = "".join(f"line {number}\n" for number in range(module.FOLD_CHUNKS - 1))
    assert logs.read(RUN, 0, tail).decode() == written


def test_complete_parts_are_one_object_each_and_are_read_without_listing(
    chunks: LogStore, calls: Counter[str]
) -> None:
    text = bytes(range(256))
    tail = 0
    for start in range(0, 250, 5):
        tail = chunks.append(RUN, tail, text[start : start + 5], tail)
    assert len(chunks._blobs.names("logs")) <= 3 + module.FOLD_CHUNKS
    calls.clear()
    assert chunks.read(RUN, 10, 170) == text[10:180]
    assert calls["names"] == 0
    chunks.fold(RUN)
    assert len(chunks._blobs.names("logs")) == 4
    assert b"".join(chunks.stream(RUN)) == text[:250]
    assert chunks.append(RUN, 250, text[250:]) == 256
    assert b"".join(chunks.stream(RUN)) == text


@pytest.mark.parametrize("step", ["put", "delete_all", "some of delete_all"])
def test_a_fold_that_is_killed_between_its_steps_leaves_every_byte_once(
    chunks: LogStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    text = bytes(range(40))
    for start in range(0, 35, 5):
        chunks.append(RUN, start, text[start : start + 5], start)

    def killed(store: BlobStore, *given: Any) -> None:
        if step.startswith("some"):
            for name in list(given[0])[::2]:
                store.delete(name)
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(BlobStore, step.rsplit(maxsplit=1)[-1], killed)
        with pytest.raises(OSError, match="killed"):
            chunks.fold(RUN)
    assert b"".join(chunks.stream(RUN)) == text[:35]
    assert chunks.length(RUN) == 35
    assert chunks.append(RUN, 35, text[35:], 35) == 40
    chunks.fold(RUN)
    assert b"".join(chunks.stream(RUN)) == text
    assert len(chunks._blobs.names("logs")) == 1


def test_a_reader_between_the_steps_of_a_fold_sees_the_bytes_once(
    chunks: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has listed the chunks before they are gone."""
    text = bytes(range(30))
    for start in range(0, 30, 5):
        chunks.append(RUN, start, text[start : start + 5], start)
    delete, get_all = BlobStore.delete_all, BlobStore.get_all
    seen = []

    def read_then_delete(store: BlobStore, names: Any) -> None:
        seen.append(b"".join(chunks.stream(RUN)))
        delete(store, names)

    def fold_then_get(store: BlobStore, names: Any) -> list[bytes]:
        monkeypatch.setattr(BlobStore, "get_all", get_all)
        chunks.fold(RUN)
        return get_all(store, names)

    monkeypatch.setattr(BlobStore, "delete_all", read_then_delete)
    monkeypatch.setattr(BlobStore, "get_all", fold_then_get)
    assert b"".join(chunks.stream(RUN)) == text
    assert seen == [text]


def test_two_writers_at_the_same_offset_do_not_double_bytes(chunks: LogStore) -> None:
    """Both know the same end, and have read the log of the node up to different bytes."""
    text = bytes(range(200))
    chunks.append(RUN, 0, text[:30], 0)
    chunks.append(RUN, 30, text[30:90], 30)
    assert chunks.append(RUN, 30, text[30:50], 30) == 50
    assert chunks.append(RUN, 50, text[50:120], 50) == 120
    assert b"".join(chunks.stream(RUN)) == text[:120]
    chunks.fold(RUN)
    assert b"".join(chunks.stream(RUN)) == text[:120]
    assert chunks.length(RUN) == 120


@settings(max_examples=40, deadline=None)
@given(
    writes=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40), st.booleans()), max_size=40)
)
def test_whatever_writers_and_folds_do_beside_each_other_reads_as_the_source(
    writes: list[tuple[int, int, bool]],
) -> None:
    """Writers know ends of different ages, so that their chunks overlap."""
    source = bytes(range(200))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "PART_BYTES", 32)
        patched.setattr(module, "FOLD_CHUNKS", 3)
        logs = LogStore(f"memory://{uuid4()}")
        reached = 0
        for known, size, folds in writes:
            tail = min(known, reached)
            end = logs.append(RUN, tail, source[tail : tail + size], tail)
            reached = max(reached, end)
            if folds:
                logs.fold(RUN)
            assert logs.length(RUN) == reached
            assert b"".join(logs.stream(RUN)) == source[:reached]
