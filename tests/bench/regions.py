"""1,000 regions served by one process: its memory, and the long polls that it keeps open."""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import httpx
from temporalio.client import Client
from temporalio.worker import Worker

from tests.activities.watch_workflow import AskSite
from tests.bench.home import home
from tests.bench.machine import MIB, memory_bytes
from tests.bench.measure import Row
from tests.bench.stack import scaled
from tests.temporal_server import CHECKOUT, TemporalServer
from tests.waiting import eventually
from workers.registry import workflow_runner
from workers.runner.probes import free_port
from workflows.effects.regions import CheckSite

REGIONS = 1000
QUEUE = "bench"
AT_ONCE = 64
SERVER_LIMIT = 1200
"""The long polls that a server accepts for each API and namespace."""


def rows() -> list[Row]:
    """A main worker process; each region is asked once whether its site is served."""
    with tempfile.TemporaryDirectory() as folder, home() as (path, _):
        server = TemporalServer(Path(folder))
        server.start()
        try:
            return asyncio.run(_measure(server, path))
        finally:
            server.stop()


async def _measure(server: TemporalServer, path: Path) -> list[Row]:
    client = await server.connect()
    shown = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "BASELOAD_TEMPORAL_ADDRESS": server.address,
        "BASELOAD_METRICS": shown,
    }
    process = _worker(path, environment)
    asking = Worker(
        client, task_queue=QUEUE, workflows=[AskSite], workflow_runner=workflow_runner()
    )
    try:
        async with asking:
            await _ask_all(client, 1)
            one_bytes, one_polls = memory_bytes(process.pid), await _polls(shown)
            started = time.monotonic()
            await _ask_all(client, scaled(REGIONS))
            seconds = time.monotonic() - started
            await eventually(lambda: process.poll() is None, "it runs")
            all_bytes, all_polls = memory_bytes(process.pid), await _polls(shown)
    finally:
        process.terminate()
        process.wait(30)
    return [
        Row(
            f"{scaled(REGIONS):,} regions in one process, each asked once in {seconds:.0f} s",
            f"{all_bytes / MIB:,.0f} MiB, {all_polls} long polls for activities",
            f"one region: {one_bytes / MIB:,.0f} MiB, {one_polls}",
            f"< {SERVER_LIMIT:,} polls",
            all_polls < SERVER_LIMIT,
        )
    ]


def _worker(path: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (path / "worker.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "workers", "main"],
            cwd=CHECKOUT, env=environment, stdout=log, stderr=log,
        )  # fmt: skip


async def _ask_all(client: Client, count: int) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int) -> None:
        async with turns:
            await client.execute_workflow(
                AskSite.run,
                CheckSite(region_id=f"reg-{number}"),
                id=f"ask/{uuid.uuid4().hex}",
                task_queue=QUEUE,
            )

    await asyncio.gather(*map(ask, range(count)))


async def _polls(shown: str) -> int:
    """The long polls for activities that the process keeps open, by its own metrics."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://{shown}/metrics")).text
    polls = r"^temporal_num_pollers\{[^}]*activity_task[^}]*\} (\d+)"
    found = re.findall(polls, text, re.MULTILINE)
    return sum(map(int, found))
