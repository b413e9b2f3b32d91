"""Parts of logs over HTTP: their last lines, what is young, each line behind its time."""

from datetime import UTC, datetime, timedelta

import pytest

from activities.db import tables
from activities.settings import settings
from activities.storage.log_times import LogTimes
from activities.storage.logs import log_store
from api.services import log_parts
from tests.api.http_server import Person, Site


async def _job(site: Site, ada: Person) -> str:
    job_id = await ada.job()
    site.set(tables.Job, job_id, status="finished")
    return job_id


def _print(job_id: str, text: bytes, age_s: float | None = None, attempt: int = 1) -> None:
    """Store text; age_s: how long ago, None: in a time when times were not kept."""
    logs, run = log_store(settings().storage), f"{job_id}-0-{attempt}"
    length = logs.length(run)
    logs.append(run, length, text)
    if age_s is not None:
        at_s = (datetime.now(UTC) - timedelta(seconds=age_s)).timestamp()
        LogTimes(settings().storage, lambda: at_s).note(run, length, length + len(text))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (0, b""),
        (1, b"line 199999\n"),
        (3, b"line 199997\nline 199998\nline 199999\n"),
        (100_000, b"".join(b"line %d\n" % number for number in range(100_000, 200_000))),
    ],
)
async def test_the_last_lines_are_read_from_the_end(
    site: Site, ada: Person, lines: int, expected: bytes
) -> None:
    job_id = await _job(site, ada)
    _print(job_id, b"".join(b"line %d\n" % number for number in range(200_000)))
    answer = await ada.get(f"/v1/jobs/{job_id}/logs?tail={lines}")
    assert answer.content == expected
    length = int(answer.headers["Baseload-Log-Length"])
    assert answer.headers["Baseload-Log-Offset"] == str(length - len(expected))


async def test_the_last_line_may_have_no_end_and_lines_cross_attempts(
    site: Site, ada: Person
) -> None:
    job_id = await _job(site, ada)
    _print(job_id, b"one\ntwo\n")
    _print(job_id, b"three\nfour", attempt=2)
    site.set(tables.Job, job_id, attempt=2)
    for lines, expected in ((1, b"four"), (3, b"two\nthree\nfour"), (9, b"one\ntwo\nthree\nfour")):
        assert (await ada.get(f"/v1/jobs/{job_id}/logs?tail={lines}")).content == expected


async def test_a_line_without_end_is_looked_for_only_so_far(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_parts, "MOST_TAIL_BYTES", 2 * log_parts.BLOCK_BYTES)
    job_id = await _job(site, ada)
    _print(job_id, b"x" * 500_000)
    found = (await ada.get(f"/v1/jobs/{job_id}/logs?tail=2")).content
    assert len(found) == 2 * log_parts.BLOCK_BYTES


async def test_what_is_young_is_found_by_the_marks_beside_the_log(site: Site, ada: Person) -> None:
    job_id = await _job(site, ada)
    for age_s, text in ((3600, b"old\n"), (300, b"young\n"), (10, b"new\n")):
        _print(job_id, text, age_s)
    for age_s, expected in ((7200, b"old\nyoung\nnew\n"), (600, b"young\nnew\n"), (60, b"new\n")):
        since = datetime.now(UTC) - timedelta(seconds=age_s)
        answer = await ada.get(f"/v1/jobs/{job_id}/logs", params={"since": since.isoformat()})
        assert answer.content == expected
    both = {"since": (datetime.now(UTC) - timedelta(seconds=600)).isoformat(), "tail": "1"}
    assert (await ada.get(f"/v1/jobs/{job_id}/logs", params=both)).content == b"new\n"
    now = {"since": (datetime.now(UTC) + timedelta(seconds=60)).isoformat()}
    assert (await ada.get(f"/v1/jobs/{job_id}/logs", params=now)).content == b""


async def test_a_log_of_a_time_without_marks_says_that_it_has_none(site: Site, ada: Person) -> None:
    job_id = await _job(site, ada)
    _print(job_id, b"old\n")
    since = {"since": datetime.now(UTC).isoformat()}
    refused = await ada.get(f"/v1/jobs/{job_id}/logs", params=since)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    stamped = await ada.get(f"/v1/jobs/{job_id}/logs?timestamps=true")
    assert stamped.content == b"- old\n"
    naive = await ada.get(f"/v1/jobs/{job_id}/logs?since=2026-01-01T00:00:00")
    assert naive.status_code == 422


async def test_each_line_stands_behind_the_time_at_which_it_was_stored(
    site: Site, ada: Person
) -> None:
    job_id = await _job(site, ada)
    _print(job_id, b"epoch 1\nepo", 3600)
    _print(job_id, b"ch 2\r50%\n", 60)
    _print(job_id, b"end\n", 5, attempt=2)
    site.set(tables.Job, job_id, attempt=2)
    lines = (await ada.get(f"/v1/jobs/{job_id}/logs?timestamps=true")).text.split("\n")
    stamps, texts = zip(*(line.split(" ", 1) for line in lines[:-1]), strict=True)
    assert texts == ("epoch 1", "epoch 2\r50%", "end")
    ages = [(datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds() for stamp in stamps]
    assert [round(age / 30) for age in ages] == [120, 120, 0]
    within = await ada.get(f"/v1/jobs/{job_id}/logs?timestamps=true&offset=3")
    assert within.text.startswith("ch 1\n"), "the part of a line has no time"


async def test_a_reader_that_follows_begins_with_the_last_lines_and_gets_times(
    site: Site, ada: Person
) -> None:
    job_id = await _job(site, ada)
    _print(job_id, b"one\ntwo\nthree\n", 60)
    answer = await ada.get(f"/v1/jobs/{job_id}/logs?follow=true&tail=2&timestamps=true")
    assert '"offset":4' in answer.text
    assert answer.text.count("Z two") == 1
    assert "one" not in answer.text
    again = await ada.get(
        f"/v1/jobs/{job_id}/logs?follow=true&tail=2", headers={"Last-Event-ID": "8"}
    )
    assert '"text":"three\\n"' in again.text
    assert "two" not in again.text
