"""API and workers are started and stopped, over and over: none crashes while it leaves.

Half of them are stopped in the middle of work: jobs have just been submitted, or requests are being
answered. `BASELOAD_DEPARTURES=100 pytest tests/workers/test_departures.py` is the long form.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.temporal_server import CHECKOUT, TemporalServer
from workers.runner.probes import free_port

DEPARTURES = int(os.environ.get("BASELOAD_DEPARTURES", "3"))
AT_ONCE = 2
START_LIMIT_S = 180.0
STOP_LIMIT_S = 15.0
READERS = 3
JOBS_OF_A_LIFE = 3
WAITING = {
    "name": "waits",
    "type": "training",
    "resources": {"gpus": "cpu", "cpu_count": 1},
    "workers": [{"command": "true"}],
}
Working = Callable[[int], AbstractAsyncContextManager[None]]
"""Gives the process at a port work for as long as the context lasts."""


@dataclass
class Life:
    """How one process left: its status, what it had said, seconds to its service and to its end."""

    status: int
    said: str
    start_s: float
    stop_s: float


@asynccontextmanager
async def started(
    kind: str, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers", kind,
        cwd=CHECKOUT,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_it_serves(process: asyncio.subprocess.Process) -> bytes:
    """What it has said until then."""
    assert process.stderr is not None
    said = b""
    async with asyncio.timeout(START_LIMIT_S):
        while b"serves" not in said:
            line = await process.stderr.readline()
            assert line, said.decode()
            said += line
    return said


async def one_life(
    kind: str, environment: Mapping[str, str], *, early: bool, working: Working
) -> Life:
    """Start, stop when it serves and has work (or while it still starts)."""
    port = free_port()
    began = time.monotonic()
    async with started(kind, {**environment, "BASELOAD_API": f"127.0.0.1:{port}"}) as process:
        said = b"" if early else await until_it_serves(process)
        start_s = time.monotonic() - began
        async with contextlib.nullcontext() if early else working(port):
            process.send_signal(signal.SIGTERM)
            stopped = time.monotonic()
            assert process.stderr is not None
            rest, status = await asyncio.wait_for(
                asyncio.gather(process.stderr.read(), process.wait()), STOP_LIMIT_S + START_LIMIT_S
            )
        return Life(status, (said + rest).decode(), start_s, time.monotonic() - stopped)


@asynccontextmanager
async def at_rest(_port: int) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def being_read(port: int, headers: Mapping[str, str]) -> AsyncIterator[None]:
    """Requests are under way when it is told to stop; those that it takes are answered."""
    first = asyncio.Event()

    async def read(client: httpx.AsyncClient) -> None:
        with contextlib.suppress(httpx.TransportError):  # it is gone
            while True:
                answer = await client.post("/v1/jobs", json=WAITING)
                assert answer.status_code in (201, 202), answer.text
                assert (await client.get("/v1/jobs")).status_code == 200
                first.set()

    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        readers = [asyncio.create_task(read(client)) for _ in range(READERS)]
        async with asyncio.timeout(START_LIMIT_S):
            await first.wait()
        yield
        await asyncio.gather(*readers)


@asynccontextmanager
async def with_new_jobs(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """Lifecycles begin while it is told to stop."""
    for _ in range(JOBS_OF_A_LIFE):
        (await client.post("/v1/jobs", json=WAITING)).raise_for_status()
    yield


@pytest.fixture(scope="module")
async def environment(
    tmp_path_factory: pytest.TempPathFactory, temporal_process: TemporalServer
) -> Mapping[str, str]:
    """What processes of one installation find."""
    return {
        **os.environ,
        "BASELOAD_HOME": str(tmp_path_factory.mktemp("home")),
        "BASELOAD_TEMPORAL_ADDRESS": temporal_process.address,
        "BASELOAD_TEMPORAL_NAMESPACE": (await temporal_process.namespace()).namespace,
    }


@pytest.fixture(scope="module")
async def companion(environment: Mapping[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """An API that stays, and an administrator's client of it."""
    port = free_port()
    async with started("api", {**environment, "BASELOAD_API": f"127.0.0.1:{port}"}) as process:
        await until_it_serves(process)
        url = f"http://127.0.0.1:{port}"
        headers = credentials(environment)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            yield client


def credentials(environment: Mapping[str, str]) -> dict[str, str]:
    key = (Path(environment["BASELOAD_HOME"]) / "admin.key").read_text().strip()
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.timeout(400 + DEPARTURES * 30)
@pytest.mark.parametrize("kind", ["api", "main", "planning"])
async def test_no_process_crashes_while_it_leaves(
    kind: str, environment: Mapping[str, str], companion: httpx.AsyncClient
) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    def in_work(port: int) -> AbstractAsyncContextManager[None]:
        if kind == "api":
            return being_read(port, credentials(environment))
        return with_new_jobs(companion)

    async def life(number: int) -> Life:
        async with turns:
            working = in_work if number % 2 else at_rest
            return await one_life(kind, environment, early=number % 4 == 2, working=working)

    lives = await asyncio.gather(*(life(number) for number in range(DEPARTURES)))
    crashed = [life.said for life in lives if life.status in (134, 139, -6, -11)]
    assert crashed == []
    late = [life for life in lives if life.status not in (0, -signal.SIGTERM)]
    assert late == []
    assert [life.said for life in lives if "Traceback" in life.said] == []
    report(kind, lives)


def report(kind: str, lives: list[Life]) -> None:
    """The times, for whoever runs the long form (`-s` shows them)."""
    for name, times in (
        ("start", sorted(life.start_s for life in lives if "serves" in life.said)),
        ("stop", sorted(life.stop_s for life in lives)),
    ):
        middle, longest = times[len(times) // 2], times[-1]
        sys.stdout.write(
            f"{kind}: {len(times)} times {name}: p50 {middle:.2f} s, longest {longest:.2f} s\n"
        )
