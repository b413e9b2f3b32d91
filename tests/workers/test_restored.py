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
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.temporal_server import TemporalServer
from tests.waiting import eventually
from tests.workers.listener import Listener, last_long
from workers.registry import workflow_runner
from workers.startup import QUIET_QUEUE, serve_workflows

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


class Wire:
    """A proxy before a Temporal server, which can cut the connections that it carries."""

    def __init__(self, server: TemporalServer) -> None:
        self._server = server
        self._carried: list[asyncio.StreamWriter] = []
        self.is_open = asyncio.Event()
        """While it is not set, nobody answers who connects."""
        self.is_open.set()

    async def __aenter__(self) -> str:
        self._listening = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host, port = self._listening.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._carried:
            writer.transport.abort()
        self._carried.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carried.append(writer)
        await self.is_open.wait()
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._carried.append(other_writer)
        with contextlib.suppress(OSError):
            await asyncio.gather(_pipe(reader, other_writer), _pipe(other_reader, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(1 << 16):
        target.write(chunk)
        await target.drain()


async def test_a_connection_that_something_on_the_way_cuts_cancels_no_activity(
    server: TemporalServer,
) -> None:
    direct = await server.connect()
    wire = Wire(server)
    async with wire as address:
        client = await Client.connect(address, data_converter=direct.data_converter)
        async with serving(client):
            busy = await direct.start_workflow(Listener.run, id="busy", task_queue=QUEUE)
            await busy.signal(Listener.say, "busy")
            attempts: set[int] = set()

            async def is_busy() -> bool:
                pending = (await busy.describe()).raw_description.pending_activities
                attempts.update(one.attempt for one in pending if one.HasField("last_started_time"))
                return bool(attempts)

            await eventually(is_busy, "it is busy", 30)
            wire.cut()
            other = await direct.start_workflow(Listener.run, id="other", task_queue=QUEUE)
            await other.signal(Listener.say, "end")
            assert await asyncio.wait_for(other.result(), 60) == ["end"]
            await is_busy()
            assert attempts == {1}


async def test_a_temporal_that_is_started_again_behind_a_silent_connection_is_noticed(
    server: TemporalServer,
) -> None:
    direct = await server.connect()
    wire = Wire(server)
    made: list[Any] = []

    def worker() -> Any:
        made.append(IdleWorker())
        return made[-1]

    async with wire as address:
        client = await Client.connect(address, data_converter=direct.data_converter)
        stop = asyncio.Event()
        serves = asyncio.create_task(serve_workflows(stop, client, worker))
        await eventually(lambda: len(made) == 1, "it serves")
        await polls(direct)
        wire.is_open.clear()
        wire.cut()
        server.stop()
        server.start()
        await server.connect()
        wire.is_open.set()
        await eventually(lambda: len(made) == 2, "another worker serves", 30)
        stop.set()
        await serves


async def polls(client: Client) -> None:
    """Until somebody waits for a task at the quiet queue."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=QUIET_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )

    async def is_polled() -> bool:
        return len((await client.workflow_service.describe_task_queue(request)).pollers) > 0

    await eventually(is_polled, "a poll waits", 30)


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
        identity="worker",
        workflow_service=SimpleNamespace(
            poll_workflow_task_queue=refuse, describe_task_queue=refuse
        ),
        service_client=SimpleNamespace(check_health=is_healthy),
    )
    made: list[Any] = []

    def worker() -> Any:
        made.append(IdleWorker())
        return made[-1]

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serve_workflows(asyncio.Event(), client, worker), 1)
    assert len(made) <= 3
