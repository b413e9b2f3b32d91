"""Temporal's files are restored behind a worker that lives on, with workflow runs in its cache."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.temporal_server import TemporalServer
from tests.waiting import eventually
from tests.workers.listener import Listener, last_long
from workers.registry import workflow_runner
from workers.startup import serve_workflows

QUEUE = "restored"


@asynccontextmanager
async def serving(client: Client) -> AsyncIterator[None]:
    """As the main worker process serves."""

    def worker() -> Worker:
        return Worker(
            client,
            task_queue=QUEUE,
            workflows=[Listener],
            activities=[last_long],
            workflow_runner=workflow_runner(),
        )

    stop = asyncio.Event()
    task = asyncio.create_task(serve_workflows(stop, client, worker))
    try:
        yield
    finally:
        stop.set()
        await task


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TemporalServer]:
    server = TemporalServer(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_cached_run_that_knows_more_than_the_restored_history_begins_anew_from_it(
    server: TemporalServer, tmp_path: Path
) -> None:
    file, old = tmp_path / "temporal.db", tmp_path / "old.db"
    client = await server.connect()
    async with serving(client):
        handle = await client.start_workflow(Listener.run, id="listener", task_queue=QUEUE)
        await handle.signal(Listener.say, "before")

        async def has_heard() -> bool:
            return await handle.query(Listener.heard) == ["before"]

        await eventually(has_heard, "it has heard the first word", 30)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(old)) as target:
            source.backup(target)
        await handle.signal(Listener.say, "busy")

        async def is_busy() -> bool:
            return len((await handle.describe()).raw_description.pending_activities) == 1

        await eventually(is_busy, "it is busy", 30)

        server.stop()
        for end in ("-wal", "-shm"):
            file.with_name(file.name + end).unlink(missing_ok=True)
        old.rename(file)
        server.start()
        await server.connect()
        await handle.signal(Listener.say, "end")
        assert await asyncio.wait_for(handle.result(), 60) == ["before", "end"]


class IdleWorker:
    """A worker that serves nothing."""

    task_queue = QUEUE

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_a_temporal_that_is_there_and_refuses_polls_gets_few_new_workers() -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise RPCError("no host of matching is there", RPCStatusCode.UNAVAILABLE, b"")

    async def is_healthy(**_: object) -> bool:
        return True

    client: Any = SimpleNamespace(
        namespace="default",
        workflow_service=SimpleNamespace(poll_workflow_task_queue=refuse),
        service_client=SimpleNamespace(check_health=is_healthy),
    )
    made: list[Any] = []

    def worker() -> Any:
        made.append(IdleWorker())
        return made[-1]

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serve_workflows(asyncio.Event(), client, worker), 1)
    assert len(made) <= 3
