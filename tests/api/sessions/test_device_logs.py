"""The log of a device over HTTP: its last lines, a stream that ends with what runs, refusals."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.db import tables
from api.event_streams import Sent
from api.sessions import device_logs
from api.sessions.device_logs import TextPieces
from api.sessions.entrance import SessionCounts
from tests.api.device_rows import device, edge_region
from tests.api.http_server import Person, Site
from tests.api.sessions.device_sites import EOF, OPENED, DeviceSites, at, refused
from tests.api.test_event_streams import Server, following, server
from tests.waiting import eventually
from workflows.contracts.sessions import MOST_LOG_BYTES

__all__ = ["server"]
SILENT = refused("node-lost", "dev-1: its log was silent for 12 s")


@pytest.fixture
def sites(site: Site) -> Iterator[DeviceSites]:
    before = site.app.state.switchboard
    found = site.app.state.switchboard = DeviceSites(OPENED, at(7), b"one\ntwo\n", EOF)
    yield found
    site.app.state.switchboard = before
    site.app.state.device_log_counts = SessionCounts(10, 8, 40)


@pytest.fixture
async def path(site: Site, ada: Person, sites: DeviceSites) -> str:
    """Of the log of a device to which something was deployed."""
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id, assignment_number=4)
    return f"/v1/devices/{device_id}/logs"


def _id(path: str) -> str:
    return path.split("/")[3]


async def test_the_last_lines_are_read_from_the_device_where_it_is(
    ada: Person, path: str, sites: DeviceSites
) -> None:
    found = await ada.get(f"{path}?lines=2")
    assert (found.status_code, found.content) == (200, b"one\ntwo\n")
    assert found.headers["baseload-log-offset"] == "7"
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    ((place, asked),) = sites.asked
    assert (place.node.node_id, place.node.host) == (_id(path), "10.0.0.2")
    assert (asked.lines, asked.follow, asked.after) == (2, False, None)
    await eventually(lambda: not sites.open_lines(), "its line is closed")


async def test_an_empty_log_is_no_error(ada: Person, path: str, sites: DeviceSites) -> None:
    sites.words = (OPENED, EOF)
    found = await ada.get(path)
    assert (found.status_code, found.content) == (200, b"")


async def test_no_more_is_read_at_once_than_the_limit(
    ada: Person, path: str, sites: DeviceSites
) -> None:
    block = bytes(1 << 20)
    sites.words = (OPENED, at(0), *[block] * (MOST_LOG_BYTES // len(block) + 1))
    assert len((await ada.get(path)).content) == MOST_LOG_BYTES


@pytest.mark.parametrize(
    ("words", "answered"),
    [
        ((refused("no-log", "the device has no inference"),), (409, "the device has no inference")),
        ((SILENT,), (503, "was silent for 12 s")),
        ((OPENED, at(0), b"hi", SILENT), (503, "was silent for 12 s")),
        ((OPENED, at(0), b"hi", "no message"), (503, "was lost")),
        ((EOF,), (503, "was lost")),
    ],
    ids=["none", "silent", "silent meanwhile", "no message", "not opened"],
)
async def test_what_the_site_cannot_read_is_refused_and_names_the_device(
    ada: Person, path: str, sites: DeviceSites, words: tuple[Any, ...], answered: tuple[int, str]
) -> None:
    sites.words = words
    status, said = answered
    answer = await ada.get(path)
    assert answer.status_code == status
    assert "device shop-1: its log" in answer.json()["detail"]
    assert said in answer.json()["detail"]
    await eventually(lambda: not sites.open_lines(), "its line is closed")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"status": "offline", "status_reason": "no answer at 10.0.0.2"},
            "of region home: asked for the log of what it runs, found it offline: no answer at",
        ),
        ({"status": "connecting", "host": None}, "found it connecting"),
        ({"status": "archived"}, "found it archived"),
        ({"assignment_number": 0}, "found that nothing was ever deployed to it"),
    ],
)
async def test_a_device_that_is_away_or_runs_nothing_is_refused_before_its_site_is_asked(
    ada: Person, path: str, sites: DeviceSites, values: dict[str, Any], said: str
) -> None:
    ada.site.set(tables.Device, _id(path), **values)
    answer = await ada.get(path)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert said in answer.json()["detail"]
    assert sites.asked == []


async def test_nobody_reads_the_log_of_anothers_device(
    ada: Person, bob: Person, path: str, sites: DeviceSites
) -> None:
    assert (await bob.get(path)).status_code == 404
    assert (await ada.with_key(["jobs:read", "nodes:read"]).get(path)).status_code == 403
    assert (await ada.with_key(["devices:read"]).get(path)).status_code == 200
    assert len(sites.asked) == 1


async def test_who_acts_for_an_account_and_reads_a_log_is_in_its_audit_log(
    site: Site, ada: Person, admin: Person, path: str
) -> None:
    acting = {"x-baseload-account": ada.account_id}
    assert (await admin.call("GET", path, headers=acting)).status_code == 200
    (entry,) = site.rows(tables.AuditRow, action="get_device_logs")
    assert (entry.resource_id, entry.acting_as) == (_id(path), "administrator")


async def test_a_followed_log_goes_on_as_it_grows_and_ends_with_what_runs(
    server: Server, ada: Person, path: str, sites: DeviceSites
) -> None:
    sites.words = (OPENED, at(7), b"one \xc3")
    async with following(server, ada, f"{path}?lines=1") as reader:
        await eventually(lambda: bool(reader.messages), "the first piece")
        assert reader.last_id == "4-11"
        sites.sockets[0].say(b"\xa9\n", at(100), b"\xffgap\n", EOF)
        await eventually(lambda: reader.ended, "the end")
    pieces = [json.loads(each["data"]) for each in reader.messages[:-1]]
    assert [(each["offset"], each["text"]) for each in pieces] == [
        (7, "one "), (11, "é\n"), (100, "\ufffdgap\n"),
    ]  # fmt: skip
    assert reader.messages[-1]["event"] == "end"
    await eventually(lambda: not sites.open_lines(), "its line is closed")


async def test_a_reader_that_comes_back_goes_on_where_it_was(
    server: Server, ada: Person, path: str, sites: DeviceSites
) -> None:
    async with following(server, ada, path, "4-15") as reader:
        await eventually(lambda: reader.ended, "the end")
    ((_, asked),) = sites.asked
    assert (asked.follow, asked.after) == (True, at(15))
    wrong = await ada.call("GET", f"{path}?follow=true", headers={"last-event-id": "x"})
    assert wrong.status_code == 422


async def test_a_device_that_falls_silent_is_an_error_and_no_end(
    server: Server, ada: Person, path: str, sites: DeviceSites
) -> None:
    sites.words = (OPENED, at(0), b"hi\n", SILENT)
    async with following(server, ada, path) as reader:
        await eventually(lambda: reader.ended, "the stream ends")
    last = reader.messages[-1]
    assert last["event"] == "problem"
    details = json.loads(last["data"])
    assert (details["code"], details["status"]) == ("unavailable", 503)
    assert "was silent for 12 s" in details["detail"]


async def test_a_reader_who_goes_closes_the_line_of_the_site(
    server: Server, ada: Person, path: str, sites: DeviceSites
) -> None:
    sites.words = (OPENED, at(0), b"hi\n")
    async with following(server, ada, path) as reader:
        await eventually(lambda: bool(reader.messages), "the first piece")
        assert sites.open_lines() == 1
    await eventually(lambda: not sites.open_lines(), "its line is closed")


async def test_a_stream_ends_at_its_limit_of_time_without_a_word_of_an_end(
    server: Server, ada: Person, path: str, sites: DeviceSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "FOLLOW_LIMIT_S", 0.0)
    sites.words = (OPENED, at(0), b"hi\n")
    async with following(server, ada, path) as reader:
        await eventually(lambda: reader.ended, "the stream ends")
    assert [each.get("event") for each in reader.messages if "event" in each] == []


async def test_a_stream_ends_with_the_key_that_opened_it(
    server: Server, ada: Person, path: str, sites: DeviceSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "CHECK_INTERVAL_S", 0.0)
    sites.words = (OPENED, at(0), b"hi\n")
    key = ada.with_key(["devices:read"])
    async with following(server, key, path) as reader:
        await eventually(lambda: bool(reader.messages), "the first piece")
        past = datetime.now(UTC) - timedelta(seconds=1)
        for row in ada.site.rows(tables.ApiKey, account_id=ada.account_id):
            if row.scopes == ["devices:read"]:
                ada.site.set(tables.ApiKey, row.id, revoked_at=past)
        sites.sockets[0].say(b"more\n")
        await eventually(lambda: reader.ended, "the stream ends")
    assert json.loads(reader.messages[-1]["data"])["code"] == "unauthorized"
    await eventually(lambda: not sites.open_lines(), "its line is closed")


@pytest.mark.parametrize(
    "most", [(1, 9, 9), (9, 1, 9), (9, 9, 1)], ids=["key", "device", "account"]
)
async def test_so_many_follow_at_once(
    server: Server, ada: Person, path: str, sites: DeviceSites, most: tuple[int, ...]
) -> None:
    ada.site.app.state.device_log_counts = SessionCounts(*most)
    sites.words = (OPENED, at(0), b"hi\n")
    async with following(server, ada, path) as reader:
        await eventually(lambda: bool(reader.messages), "the first piece")
        for query in ("", "?follow=true"):
            answer = await ada.get(path + query)
            assert (answer.status_code, answer.json()["code"]) == (429, "too-many-requests")
    await eventually(lambda: not sites.open_lines(), "its line is closed")
    sites.words = (OPENED, EOF)
    assert (await ada.get(path)).status_code == 200


@pytest.mark.parametrize("query", ["lines=-1", "lines=10001", "lines=x"])
async def test_a_number_of_lines_has_bounds(ada: Person, path: str, query: str) -> None:
    assert (await ada.get(f"{path}?{query}")).status_code == 422


def test_what_is_left_of_a_character_is_said_before_a_gap() -> None:
    pieces = TextPieces()
    said: list[Sent] = [*pieces.take(at(0), b"a\xe2\x82")]
    said += pieces.take(at(50), b"b")
    said += pieces.take(at(51), b"\xe2")
    said += pieces.rest()
    found = [(json.loads(each.data), each.id) for each in said]
    assert found == [
        ({"offset": 0, "text": "a"}, "4-1"),
        ({"offset": 1, "text": "\ufffd"}, "4-3"),
        ({"offset": 50, "text": "b"}, "4-51"),
        ({"offset": 51, "text": "\ufffd"}, "4-52"),
    ]
