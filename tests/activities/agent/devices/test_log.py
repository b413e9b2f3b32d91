"""The log of a device: bounded, and read by bytes that are counted from its start."""

import os
from pathlib import Path

import pytest

from activities.agent.devices import log
from activities.agent.devices.state import Revision
from activities.agent.host import processes
from tests.activities.agent.devices.conftest import MakeRevision

MOST = 1000
LINE = b"%07d\n"


def written(revision: Revision, lines: int) -> None:
    """Write numbered lines of eight bytes, as a command does."""
    kept = log.BoundedLog(revision, {"most_log_bytes": MOST})
    inlet = os.dup(kept.inlet)
    kept.begin()
    for number in range(lines):
        os.write(inlet, LINE % number)
        while log.bounds(revision)[1] < (number + 1) * len(LINE % 0):
            os.sched_yield()
    os.close(inlet)
    kept.finish()
    os.close(kept.file)


def test_a_log_keeps_its_last_bytes_however_much_is_printed(make_revision: MakeRevision) -> None:
    revision = make_revision()
    written(revision, 600)
    first, end = log.bounds(revision)
    on_disk = revision.log_bytes() + len(Path(revision.at(log.EARLIER)).read_bytes())
    assert (end, end - first) == (4800, on_disk)
    assert on_disk <= 2 * MOST
    text = log.read(revision, first, MOST)
    text += log.read(revision, first + len(text), MOST)
    assert text == b"".join(LINE % number for number in range(first // 8, 600))
    assert log.read(revision, first - 8, 8) == b""
    assert log.last_lines(revision, 20) == "0000598\n0000599"


def test_a_log_begins_anew_with_each_start(make_revision: MakeRevision) -> None:
    revision = make_revision()
    written(revision, 300)
    written(revision, 2)
    assert log.bounds(revision) == (0, 16)
    assert log.last_lines(revision, 2000) == "0000000\n0000001"


def test_the_last_lines_begin_where_they_are_counted_from_the_end(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_revision()
    written(revision, 600)
    first, end = log.bounds(revision)
    for scan_bytes in (1, 7, 8, 4096):  # Whatever is read at once, also over both files.
        monkeypatch.setattr(log, "SCAN_BYTES", scan_bytes)
        begins = [log.begin_of_last(revision, lines, end) for lines in (0, 1, 2, 150)]
        assert begins == [end, end - 8, end - 16, end - 150 * 8]
    assert log.begin_of_last(revision, 10_000, end) == first
    assert log.begin_of_last(revision, 10_000, 20) == end - 20
    Path(revision.log).write_bytes(b"\n\nunfinished")
    Path(revision.at(log.EARLIER)).unlink()
    Path(revision.at(log.AT)).unlink()
    assert [log.begin_of_last(revision, lines, 100) for lines in (1, 2, 3, 4)] == [2, 1, 0, 0]


def test_a_command_that_prints_for_ever_prints_no_more_than_a_flash_bears(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(processes, "monotonic_s", lambda: clock[0])
    bounded = log.BoundedLog(make_revision(), {})
    written = 0
    while clock[0] < 3600:
        clock[0] += max(0.0, bounded._spend(1 << 18))
        written += 1 << 18
    assert written <= log.AT_ONCE_BYTES + 3601 * log.MOST_BYTES_PER_S
    clock[0] += 3600
    assert bounded._spend(log.AT_ONCE_BYTES) <= 0
