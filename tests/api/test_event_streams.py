"""Logs and events as they come, over a real server: nothing lost, nothing doubled."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.settings import settings
from activities.storage.logs import log_store
from api import event_streams
from api.schemas.events import Event, LogPiece
from api.services.job_logs import WorkerLog
from tests.api.http_server import Person, Site
from tests.waiting import eventually
from workers.process import serve_http


@dataclass
class Server:
    url: str
    stop: asyncio.Event
    serving: "asyncio.Task[int]"


@pytest.fixture
async def server(site: Site) -> AsyncIterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stop = asyncio.Event()
    site.app.state.stop = stop
    app: Any = site.app
    serving = asyncio.create_task(serve_http(app, "127.0.0.1", port, stop))
    running = Server(f"http://127.0.0.1:{port}", stop, serving)
    await eventually(lambda: _listens(port), "the server listens")
    yield running
    stop.set()
    await serving


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class Reader:
    """Follows a stream in the background and keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, str]] = []
        self.ended = False

    @property
    def last_id(self) -> str:
        return next(m["id"] for m in reversed(self.messages) if "id" in m)

    @property
    def text(self) -> str:
        return "".join(
            json.loads(m["data"])["text"] for m in self.messages if m.get("event") != "end"
        )

    def data(self) -> list[Any]:
        return [json.loads(m["data"]) for m in self.messages]

    async def follow(self, response: httpx.Response) -> None:
        message: dict[str, str] = {}
        async for line in response.aiter_lines():
            if not line and message:
                self.messages.append(message)
                message = {}
            elif line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                message[name] = value
        self.ended = True


@asynccontextmanager
async def following(
    server: Server, person: Person, path: str, last_id: str | None = None
) -> AsyncIterator[Reader]:
    headers = {"Authorization": f"Bearer {person.secret}", "Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    reader = Reader()
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
        client.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        task = asyncio.create_task(reader.follow(response))
        yield reader
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _print(job_id: str, text: bytes, attempt: int = 1, worker: int = 0) -> None:
    logs, run = log_store(settings().storage), f"{job_id}-{worker}-{attempt}"
    logs.append(run, logs.length(run), text)


def _event(site: Site, person: Person, resource_id: str, sequence: int) -> None:
    site.write(
        tables.EventRow(
            id=new_id("evt"), account_id=person.account_id, resource_id=resource_id,
            sequence=sequence, type="job.test", message=f"step {sequence}", details={},
            at=datetime.now(UTC),
        )
    )  # fmt: skip


async def _running(site: Site, person: Person, **changes: Any) -> str:
    job_id = await person.job(**changes)
    site.set(tables.Job, job_id, status="running")
    return job_id


async def test_a_printed_line_reaches_a_reader_that_follows(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    async with following(server, ada, f"/v1/jobs/{job_id}/logs") as reader:
        for number in range(5):
            _print(job_id, f"line {number}\n".encode())
            await eventually(lambda: f"line {number}\n" in reader.text, "the line")  # noqa: B023
        assert reader.text == "".join(f"line {number}\n" for number in range(5))


async def test_a_reader_that_comes_back_has_what_one_that_stayed_has(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    path = f"/v1/jobs/{job_id}/logs"
    content = "".join(f"épôch {number} ✓\n" for number in range(300)).encode()
    async with following(server, ada, path) as stays:
        parts: list[str] = []
        last_id: str | None = None
        for start in range(0, len(content), 997):  # cuts characters in half
            async with following(server, ada, path, last_id) as reader:
                _print(job_id, content[start : start + 997])
                await eventually(lambda: bool(reader.messages), "something new")
                parts.append(reader.text)
                last_id = reader.last_id
        site.set(tables.Job, job_id, status="finished")
        async with following(server, ada, path, last_id) as reader:
            await eventually(lambda: reader.ended, "the end")
            parts.append(reader.text)
        await eventually(lambda: stays.ended, "the end")
    assert stays.text == content.decode()
    assert "".join(parts) == content.decode()
    assert stays.messages[-1]["event"] == "end"
    assert int(stays.last_id) == len(content)


async def test_bytes_that_are_no_text_are_sent_and_the_stream_ends(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    _print(job_id, b"\xff\xfe\x00binary\n" + "é".encode()[:1])
    site.set(tables.Job, job_id, status="failed")
    async with following(server, ada, f"/v1/jobs/{job_id}/logs") as reader:
        await eventually(lambda: reader.ended, "the end")
    assert "binary" in reader.text
    assert reader.messages[-1]["event"] == "end"


async def test_attempts_follow_one_another_and_workers_are_kept_apart(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada, workers=[{"command": "a"}, {"command": "b"}])
    _print(job_id, b"first\n")
    _print(job_id, b"other worker\n", worker=1)
    async with following(server, ada, f"/v1/jobs/{job_id}/logs") as reader:
        await eventually(lambda: reader.text == "first\n", "the first attempt")
        site.set(tables.Job, job_id, attempt=2)
        _print(job_id, b"second\n", attempt=2)
        site.set(tables.Job, job_id, status="finished")
        await eventually(lambda: reader.ended, "the end")
    assert reader.text == "first\nsecond\n"
    plain = await ada.get(f"/v1/jobs/{job_id}/logs?offset=6")
    assert plain.content == b"second\n"
    assert plain.headers["Baseload-Log-Length"] == "13"
    assert (await ada.get(f"/v1/jobs/{job_id}/logs?worker=1")).content == b"other worker\n"
    assert (await ada.get(f"/v1/jobs/{job_id}/logs?worker=2")).status_code == 404


async def test_an_attempt_that_ends_within_a_character_does_not_hold_up_the_next(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    _print(job_id, b"first " + "é".encode()[:1])
    site.set(tables.Job, job_id, attempt=2)
    _print(job_id, b"second\n", attempt=2)
    async with following(server, ada, f"/v1/jobs/{job_id}/logs") as reader:
        await eventually(lambda: reader.text.endswith("second\n"), "the second attempt, running")
    assert reader.text == "first \ufffdsecond\n"


async def test_a_long_log_is_sent_whole(site: Site, server: Server, ada: Person) -> None:
    job_id = await _running(site, ada)
    content = b"0123456789abcde\n" * 65_536
    _print(job_id, content)
    site.set(tables.Job, job_id, status="finished")
    async with following(server, ada, f"/v1/jobs/{job_id}/logs?follow=true") as reader:
        await eventually(lambda: reader.ended, "the end")
    assert reader.text.encode() == content
    assert (await ada.get(f"/v1/jobs/{job_id}/logs")).content == content


async def test_events_of_a_resource_are_followed_from_the_first_and_resumed(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await ada.job()
    path = f"/v1/jobs/{job_id}/events"
    async with following(server, ada, path) as reader:
        await eventually(lambda: len(reader.messages) == 1, "the first event")
        _event(site, ada, job_id, 1)
        await eventually(lambda: len(reader.messages) == 2, "the second event")
        last_id = reader.last_id
    for sequence in (2, 3, 4):
        _event(site, ada, job_id, sequence)
    async with following(server, ada, path, last_id) as reader:
        await eventually(lambda: len(reader.messages) == 3, "the rest")
        assert [event["sequence"] for event in reader.data()] == [2, 3, 4]
    page = (await ada.get(f"{path}?limit=2")).json()
    assert [event["sequence"] for event in page["items"]] == [4, 3]
    assert page["next"] is not None


async def test_events_of_the_account_are_its_own_and_begin_now(
    site: Site, server: Server, ada: Person, bob: Person
) -> None:
    before = await ada.job()
    async with (
        following(server, ada, "/v1/events") as reader,
        following(server, ada, "/v1/events", "0") as all_of_them,
    ):
        await bob.job()
        after = await ada.job()
        await eventually(lambda: bool(reader.messages), "the new event")
        await eventually(lambda: len(all_of_them.messages) == 2, "both events")
    assert [event["resource_id"] for event in reader.data()] == [after]
    assert [event["resource_id"] for event in all_of_them.data()] == [before, after]
    listed = (await ada.get("/v1/events")).json()["items"]
    assert [event["resource_id"] for event in listed] == [after, before]


async def test_every_noun_shows_its_events_to_its_owner_alone(
    site: Site, ada: Person, bob: Person
) -> None:
    region_id = await ada.region()
    node_id = await ada.node(region_id)
    (region,) = site.rows(tables.Region, id=region_id)
    for noun, resource_id in (
        ("provider", region.provider_id),
        ("region", region_id),
        ("node", node_id),
    ):
        path = f"/v1/{noun}s/{resource_id}/events"
        (event,) = (await ada.get(path)).json()["items"]
        assert event["type"] == f"{noun}.requested"
        assert (await bob.get(path)).status_code == 404


async def test_open_streams_do_not_keep_the_process(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    async with (
        following(server, ada, f"/v1/jobs/{job_id}/logs") as log,
        following(server, ada, "/v1/events") as events,
    ):
        server.stop.set()
        assert await asyncio.wait_for(server.serving, 60) == 0
        await eventually(lambda: log.ended and events.ended, "both streams end")


async def test_an_upload_that_is_too_large_is_refused_by_a_real_server(
    server: Server, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_UPLOAD_MAX_BYTES", "100000")
    settings.cache_clear()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1000

    headers = {"Authorization": f"Bearer {ada.secret}"}
    async with httpx.AsyncClient(base_url=server.url, timeout=30, headers=headers) as client:
        refused = await client.post("/v1/uploads", content=endless())
        assert refused.status_code == 413
        assert "100000 bytes" in refused.json()["detail"]
        large = b'"' + b"x" * 2_000_000 + b'"'
        refused = await client.post("/v1/jobs", content=large)
        assert refused.json()["code"] == "too-large"


async def test_a_stream_ends_with_its_key(
    site: Site, server: Server, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "AUTHENTICATION_INTERVAL_S", 0.01)
    job_id = await _running(site, ada)
    made = await ada.made("/v1/api-keys", {"name": "child"})
    child = replace(ada, secret=made["secret"])
    other = await ada.made("/v1/api-keys", {"name": "expires"})
    async with (
        following(server, ada, f"/v1/jobs/{job_id}/logs") as stays,
        following(server, child, f"/v1/jobs/{job_id}/logs") as log,
        following(server, child, "/v1/events") as events,
        following(server, replace(ada, secret=other["secret"]), "/v1/events") as expires,
    ):
        _print(job_id, b"before\n")
        await eventually(lambda: "before" in log.text, "the child's line")
        site.set(tables.ApiKey, other["id"], expires_at=datetime.now(UTC))
        await ada.call("DELETE", f"/v1/api-keys/{made['id']}")
        await eventually(lambda: log.ended and events.ended and expires.ended, "the ends")
        assert not [message for message in log.messages if message.get("event") == "end"]
        _print(job_id, b"after\n")
        await eventually(lambda: "after" in stays.text, "the other's line")
        assert "after" not in log.text


async def test_a_key_has_a_limited_number_of_streams(
    site: Site, server: Server, ada: Person, bob: Person
) -> None:
    async with AsyncExitStack() as open_streams:
        for _ in range(event_streams.MAX_STREAMS_OF_KEY):
            await open_streams.enter_async_context(following(server, ada, "/v1/events"))
        headers = {"Authorization": f"Bearer {ada.secret}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            refused = await client.get("/v1/events?follow=true")
        assert refused.status_code == 429
        assert refused.json()["code"] == "too-many-requests"
        assert refused.headers["Retry-After"]
        async with following(server, bob, "/v1/events"):
            pass
        async with following(server, ada.with_key(), "/v1/events"):
            pass
    streams = site.app.state.streams
    await eventually(lambda: not streams._open and not streams._followed, "all are counted off")
    async with following(server, ada, "/v1/events"):
        pass


async def test_more_keys_give_an_account_no_more_streams(
    site: Site, server: Server, ada: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "MAX_STREAMS_OF_ACCOUNT", 2)
    async with AsyncExitStack() as open_streams:
        for person in (ada, ada.with_key()):
            await open_streams.enter_async_context(following(server, person, "/v1/events"))
        headers = {"Authorization": f"Bearer {ada.with_key().secret}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            assert (await client.get("/v1/events?follow=true")).status_code == 429
        async with following(server, bob, "/v1/events"):
            pass


async def test_the_readers_of_one_log_share_one_look(
    site: Site, server: Server, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await _running(site, ada)
    looking, most = set[object](), 0
    look = WorkerLog.look

    def counted(log: WorkerLog) -> Any:
        nonlocal most
        looking.add(log)
        most = max(most, len(looking))
        return look(log)

    monkeypatch.setattr(WorkerLog, "look", counted)
    async with AsyncExitStack() as open_streams:
        path = f"/v1/jobs/{job_id}/logs"
        readers = [
            await open_streams.enter_async_context(following(server, ada, path)) for _ in range(10)
        ]
        for number in range(3):
            _print(job_id, f"line {number}\n".encode())
            await eventually(
                lambda: all(f"line {number}\n" in reader.text for reader in readers),  # noqa: B023
                "the line at every reader",
            )
        site.set(tables.Job, job_id, status="finished")
        await eventually(lambda: all(reader.ended for reader in readers), "the ends")
    assert most == 1


async def test_streams_leave_other_requests_their_threads(
    site: Site, server: Server, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await _running(site, ada)
    names: list[str] = []
    monkeypatch.setattr(WorkerLog, "look", lambda _: names.append(threading.current_thread().name))
    async with following(server, ada, f"/v1/jobs/{job_id}/logs"):
        await eventually(lambda: bool(names), "a look")
    assert all(name.startswith("stream") for name in names)


async def test_a_stream_sends_what_the_openapi_document_says(
    site: Site, server: Server, ada: Person
) -> None:
    job_id = await _running(site, ada)
    _print(job_id, "one ä".encode())
    _event(site, ada, job_id, 7)
    site.set(tables.Job, job_id, status="finished")
    async with following(server, ada, f"/v1/jobs/{job_id}/logs") as log:
        await eventually(lambda: log.ended, "the log has ended")
    first, last = log.messages
    assert LogPiece.model_validate_json(first["data"]) == LogPiece(worker=0, offset=0, text="one ä")
    assert (first["id"], set(first)) == ("6", {"id", "data"})
    assert last == {"event": event_streams.END, "data": "{}"}
    async with following(server, ada, f"/v1/jobs/{job_id}/events") as events:
        await eventually(lambda: len(events.messages) > 1, "the events")
    for message in events.messages:
        assert message["id"] == str(Event.model_validate_json(message["data"]).position)
        assert set(message) == {"id", "data"}
