"""Requests survive what networks do; streams go on where they were cut."""

import json
from pathlib import Path

import pytest
from baseload._async.transport import AsyncTransport
from baseload._sync.transport import Transport
from baseload.calls import Call, Retries
from baseload.configuration import Configuration
from baseload.errors import ApiError, UnreachableError

from tests.client.served import Script, answer, stream

QUICK = Retries(attempts=3, first_s=0.001, longest_s=0.002, stream_limit_s=0.2)
PROBLEM = {
    "type": "t", "title": "Not valid", "status": 422, "detail": "name: is short",
    "code": "invalid-request", "errors": [{"field": "name", "rule": "is short", "value": "xx"}],
}  # fmt: skip


def _to(script: Script) -> Transport:
    return Transport(Configuration(script.url, "bl_key"), retries=QUICK)


def test_a_post_whose_answer_was_lost_is_sent_again_with_the_same_key() -> None:
    with Script([b"", answer(201, '{"id": "job-1"}')]).running() as script, _to(script) as to:
        assert to.json(Call("POST", "/v1/jobs", body={"name": "x"})) == {"id": "job-1"}
    first, second = script.asked
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body == b'{"name":"x"}'
    assert first.headers["authorization"] == "Bearer bl_key"


def test_two_posts_have_keys_of_their_own() -> None:
    with Script([answer(201, "{}"), answer(201, "{}")]).running() as script, _to(script) as to:
        call = Call("POST", "/v1/jobs", body={})
        to.json(call)
        to.json(call)
    first, second = script.asked
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_an_upload_whose_answer_was_lost_is_sent_again_whole(tmp_path: Path) -> None:
    file = tmp_path / "code.tar.gz"
    file.write_bytes(b"z" * 700_000)
    with Script([b"", answer(201, "{}")]).running() as script, _to(script) as to:
        to.send(Call("POST", "/v1/uploads", file=file))
    assert [len(asked.body) for asked in script.asked] == [700_000, 700_000]
    assert script.asked[1].headers["content-type"] == "application/gzip"


def test_what_was_never_answered_is_unreachable_and_says_where() -> None:
    with (
        Script([]).running() as script,
        _to(script) as to,
        pytest.raises(UnreachableError, match=script.url),
    ):
        to.json(Call("GET", "/v1/jobs"))
    assert len(script.asked) == QUICK.attempts


def test_an_api_that_is_busy_is_asked_again() -> None:
    busy = answer(503, "{}", "Retry-After: 0")
    with Script([busy, answer(200, "{}")]).running() as script, _to(script) as to:
        assert to.json(Call("GET", "/v1/jobs")) == {}


def test_an_api_that_stays_busy_is_a_refusal() -> None:
    busy = [answer(429, json.dumps({"code": "too-many-requests"})) for _ in range(3)]
    with (
        Script(busy).running() as script,
        _to(script) as to,
        pytest.raises(ApiError) as refused,
    ):
        to.json(Call("GET", "/v1/jobs"))
    assert (refused.value.status, refused.value.code) == (429, "too-many-requests")


def test_a_refusal_carries_the_problem_and_is_not_repeated() -> None:
    with (
        Script([answer(422, json.dumps(PROBLEM))]).running() as script,
        _to(script) as to,
        pytest.raises(ApiError) as refused,
    ):
        to.json(Call("POST", "/v1/jobs", body={}))
    assert len(script.asked) == 1
    error = refused.value
    assert (error.status, error.code, str(error)) == (422, "invalid-request", "name: is short")
    assert [(each.field, each.rule, each.value) for each in error.errors] == [
        ("name", "is short", "xx")
    ]


def test_a_refusal_that_is_no_problem_document_is_told_as_it_is() -> None:
    html = answer(404, "<h1>nginx</h1>", kind="text/html")
    with (
        Script([html]).running() as script,
        _to(script) as to,
        pytest.raises(ApiError, match="nginx") as refused,
    ):
        to.json(Call("GET", "/v1/jobs"))
    assert refused.value.status == 404


def test_a_cut_stream_goes_on_after_the_last_whole_event() -> None:
    first = stream("id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n", cut=True)
    second = stream("id: 3\ndata: c\n\n", "event: end\ndata: {}\n\n")
    with Script([first, b"", second]).running() as script, _to(script) as to:
        assert [event.data for event in to.follow("/v1/events")] == ["a", "b", "c"]
    resumed = [asked.headers.get("last-event-id") for asked in script.asked]
    assert resumed == [None, "2", "2"]


def test_a_stream_that_the_api_closed_without_ending_it_goes_on() -> None:
    closed, ended = stream("id: 5\ndata: a\n\n"), stream("event: end\ndata: {}\n\n")
    with Script([closed, ended]).running() as script, _to(script) as to:
        assert [event.data for event in to.follow("/x", {"follow": True}, "4")] == ["a"]
    assert [asked.headers["last-event-id"] for asked in script.asked] == ["4", "5"]
    assert script.asked[0].target == "/x?follow=true"


def test_a_stream_that_does_not_come_back_is_given_up() -> None:
    with Script([stream("id: 1\ndata: a\n\n", cut=True)]).running() as script, _to(script) as to:
        events = to.follow("/v1/events")
        assert next(events).data == "a"
        with pytest.raises(UnreachableError):
            next(events)


def test_a_download_that_broke_off_begins_again(tmp_path: Path) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    with Script([half, answer(200, "whole")]).running() as script, _to(script) as to:
        assert to.download(Call("GET", "/v1/jobs/job-1/output"), tmp_path / "out") == 5
    assert (tmp_path / "out").read_text() == "whole"


def test_lists_are_read_page_by_page_up_to_the_limit() -> None:
    pages = [
        answer(200, json.dumps({"items": [{"n": 1}, {"n": 2}], "next": "cursor/+="})),
        answer(200, json.dumps({"items": [{"n": 3}], "next": "more"})),
    ]
    with Script(pages).running() as script, _to(script) as to:
        items = list(to.pages("/v1/jobs", {"status": ["failed", "running"], "none": None}, 3))
    assert [item["n"] for item in items] == [1, 2, 3]
    assert script.asked[0].target == "/v1/jobs?status=failed&status=running&limit=3"
    assert script.asked[1].target.endswith("&limit=1&after=cursor%2F%2B%3D")


async def test_the_async_half_does_the_same() -> None:
    first = stream("id: 1\ndata: a\n\n", cut=True)
    second = stream("id: 2\ndata: b\n\n", "event: end\ndata: {}\n\n")
    with Script([b"", answer(200, "{}"), first, second]).running() as script:
        async with AsyncTransport(Configuration(script.url), retries=QUICK) as to:
            assert await to.json(Call("GET", "/v1/account")) == {}
            assert [event.data async for event in to.follow("/v1/events")] == ["a", "b"]
    assert script.asked[-1].headers["last-event-id"] == "1"
