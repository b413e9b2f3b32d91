"""The stack as users run it, with machines that are simulated or this one."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.e2e.platform import Platform
from tests.e2e.stack import RunningStack
from tests.lab.waiting import wait_until
from tests.temporal_server import CHECKOUT

READY_S = 120.0
SCALE = float(os.environ.get("BASELOAD_BENCH_SCALE", "1"))
"""A share of the jobs and machines of each step, to try a step in little time."""
running_stack: ContextVar[type[RunningStack]] = ContextVar("running_stack", default=RunningStack)
"""What `stack` starts."""
PROGRAMS = ("temporal", "api", "worker", "planning")


class Bench:
    """A running stack, its administrator's view, and one region of own machines."""

    def __init__(self, running: RunningStack, platform: Platform, region_id: str) -> None:
        self.running = running
        self.platform = platform
        self.region_id = region_id

    def pids(self, *names: str) -> list[int]:
        """The processes of these programs; all of them where none is named."""
        found = [self.running.pid(name) for name in names or PROGRAMS]
        return [pid for pid in found if pid is not None]

    async def temporal(self) -> Client:
        return await Client.connect(
            self.running.temporal_address, data_converter=pydantic_data_converter
        )

    def join_token(self) -> dict[str, Any]:
        """A new join token of the region, with the key that a machine lets in."""
        return self.platform.post("/v1/join-tokens", {"region_id": self.region_id})

    def join(self, machines: Sequence[dict[str, Any]], limit_s: float = 300.0) -> list[str]:
        """Make machines that answer at 127.0.0.1 active nodes. Their ids."""
        nodes = []
        for number, machine in enumerate(machines):
            user = machine.get("user", "root")
            token = self.join_token()["secret"]
            told = {"token": token, "address": "127.0.0.1", "user": user, **machine}
            self.platform.post("/v1/announcements", told)
            body = {
                "region_id": self.region_id,
                "name": f"machine-{number}",
                "minion_id": machine["minion_id"],
            }
            nodes.append(self.platform.post("/v1/nodes", body)["id"])
        self.until_nodes("maintenance", len(nodes), limit_s)
        for node_id in nodes:
            self.platform.post(f"/v1/nodes/{node_id}/activate")
        self.until_nodes("active", len(nodes), limit_s)
        return nodes

    def until_nodes(self, status: str, count: int, limit_s: float) -> None:
        """Wait until so many nodes have a status."""
        wait_until(
            lambda: len(self.platform.items("/v1/nodes", status=status, limit=500)) >= count,
            f"{count} nodes: {status}",
            limit_s,
        )

    def jobs(self, *statuses: str) -> int:
        """How many jobs there are in these states, read from the database without the API."""
        wanted = ", ".join(f"'{status}'" for status in statuses)
        return int(self.asked(f"SELECT count(*) FROM jobs WHERE status IN ({wanted})")[0][0])

    def asked(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the stack's database."""
        path = f"file:{self.running.home}/baseload.db?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def until_jobs(self, count: int, *statuses: str, limit_s: float = 900.0) -> None:
        """Wait until so many jobs are in these states."""
        what = f"{count} jobs: {' or '.join(statuses)}"
        wait_until(lambda: self.jobs(*statuses) >= count, what, limit_s)

    async def submit(self, bodies: Sequence[dict[str, Any]], at_once: int = 8) -> list[float]:
        """Submit jobs over HTTP, so many at the same time; the seconds of each answer."""
        platform = self.platform.http
        async with httpx.AsyncClient(
            base_url=platform.base_url, headers=platform.headers, timeout=60
        ) as http:

            async def one(body: dict[str, Any]) -> float:
                started = time.perf_counter()
                key = {"Idempotency-Key": str(uuid4())}
                (await http.post("/v1/jobs", json=body, headers=key)).raise_for_status()
                return time.perf_counter() - started

            return await all_of_them([one(body) for body in bodies], at_once)

    def job(self, command: str, **changes: Any) -> dict[str, Any]:
        """The body of a job of one CPU."""
        return {
            "name": "bench",
            "type": "training",
            "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
            "workers": [{"command": command}],
            "placement": {"region_id": self.region_id},
            **changes,
        }


def scaled(count: int, least: int = 1) -> int:
    """So many, or the share of them that was asked for; `least` still says something."""
    return max(min(count, least), round(count * SCALE))


@contextmanager
def stack(**settings: str) -> Iterator[Bench]:
    """A stack of its own in a folder of its own, and its end. settings: names without prefix."""
    with tempfile.TemporaryDirectory(prefix="baseload-bench-") as folder:
        Path(folder).chmod(0o711)  # jobs on this machine run as a user of their own
        usual = {"announcements_per_minute": "1000000", "job_end_grace_s": "1"}
        running = running_stack.get()(Path(folder) / "home", "127.0.0.1", **{**usual, **settings})
        try:
            running.wait_until_ready(READY_S)
            platform = Platform(running.url, running.administrator_key)
            with platform.http:
                yield Bench(running, platform, _region(platform, f"{folder}/node"))
        finally:
            running.close()


class Simulated:
    """Machines of `ssh_double`, in one process beside the stack."""

    def __init__(self, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.ssh_double", str(count)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.machines: list[dict[str, Any]] = self._read()

    def watched(self, which: str = "all") -> int:
        """How many of them are watched now. which: `devices` counts no nodes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{which}\n".encode())
        self._process.stdin.flush()
        count: int = self._read()
        return count

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def simulated(count: int) -> Iterator[Simulated]:
    """So many machines that only seem to be, until this is left."""
    machines = Simulated(count)
    try:
        yield machines
    finally:
        machines.close()


async def all_of_them(works: Sequence[Any], at_once: int) -> list[Any]:
    """The answers of coroutines, of which so many run at the same time."""
    turns = asyncio.Semaphore(at_once)

    async def in_turn(work: Any) -> Any:
        async with turns:
            return await work

    return await asyncio.gather(*(in_turn(work) for work in works))


def _region(platform: Platform, node_root: str) -> str:
    account = platform.get("/v1/account")["id"]
    platform.post(f"/v1/accounts/{account}/credits", {"amount_microcredits": 10**15})
    provider = platform.post("/v1/providers", {"kind": "physical"})["id"]
    platform.until_status(f"/v1/providers/{provider}", "ready", limit_s=READY_S)
    body = {
        "provider_id": provider,
        "name": "bench",
        "exclusive_nodes": False,
        "node_root": node_root,
        "relaxed_requirements": ["all"],
    }
    region_id: str = platform.post("/v1/regions", body)["id"]
    platform.until_status(f"/v1/regions/{region_id}", "healthy", limit_s=READY_S)
    return region_id
