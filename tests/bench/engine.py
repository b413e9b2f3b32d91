"""What starting workflows costs, beside the shortest call that Temporal answers."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

from tests.bench.measure import Row, compared
from tests.temporal_server import TemporalServer

STARTS = 200
AT_ONCE = 32


def rows() -> list[Row]:
    """On a dev server of its own; no worker takes what is started."""
    with tempfile.TemporaryDirectory() as folder:
        server = TemporalServer(Path(folder))
        server.start()
        try:
            return asyncio.run(_measure(server))
        finally:
            server.stop()


async def _measure(server: TemporalServer) -> list[Row]:
    client = await server.connect()

    async def start() -> None:
        await client.start_workflow("Nothing", id=f"bench/{uuid4()}", task_queue="nobody")

    async def call() -> None:
        await client.workflow_service.get_system_info(GetSystemInfoRequest())

    async def signal() -> None:
        await client.get_workflow_handle("bench/one").signal("wake")

    await _warm(client)
    calls_s = await _all_s(call)
    yardstick = "shortest calls"
    return [
        compared("start workflows", f"{STARTS}", await _all_s(start), yardstick, calls_s),
        compared("signal one workflow", f"{STARTS}", await _all_s(signal), yardstick, calls_s),
    ]


async def _warm(client: Client) -> None:
    await client.start_workflow("Nothing", id="bench/one", task_queue="nobody")


async def _all_s(once: Callable[[], Awaitable[None]]) -> float:
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn() -> None:
        async with turns:
            await once()

    started = time.perf_counter()
    await asyncio.gather(*(in_turn() for _ in range(STARTS)))
    return time.perf_counter() - started
