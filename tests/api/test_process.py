"""The API as a process of its own: its first start, without Temporal, and its leaving."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api.http_server import tar_gz
from tests.waiting import eventually


@dataclass
class Running:
    process: "subprocess.Popen[bytes]"
    url: str
    home: Path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "home").mkdir(mode=0o755)
    environment = os.environ | {
        "BASELOAD_HOME": str(tmp_path / "home"),
        "BASELOAD_API": address,
        "BASELOAD_TEMPORAL_ADDRESS": "127.0.0.1:1",
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers", "api"], env=environment, stderr=log
        )
    yield Running(process, f"http://{address}", tmp_path / "home")
    process.kill()
    process.wait()


async def test_a_fresh_api_serves_without_temporal_and_leaves_though_a_stream_is_open(
    running: Running,
) -> None:
    async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=20) as client:
        await eventually(lambda: _answers(running.url), "the API answers", 60)
        key_file = running.home / "admin.key"
        assert _open_to_others(running.home) == []
        client.headers["Authorization"] = f"Bearer {key_file.read_text().strip()}"
        assert (await client.get("/v1/account")).json()["is_administrator"] is True
        assert (
            (await client.get("/v1/platform")).json()["ssh_key_fingerprint"].startswith("SHA256:")
        )
        assert (await client.get("/readyz")).status_code == 503
        archive = tar_gz({"train.py": b"print(1)"})
        assert (await client.post("/v1/uploads", content=archive)).status_code == 201
        assert _open_to_others(running.home) == []
        made = await client.post("/v1/providers", json={"kind": "physical"})
        assert made.status_code == 202
        async with client.stream("GET", "/v1/events?follow=true") as events:
            assert events.status_code == 200
            running.process.send_signal(signal.SIGTERM)
            await eventually(lambda: running.process.poll() is not None, "the process leaves")
    assert running.process.returncode == 0


def _open_to_others(home: Path) -> list[str]:
    """Files and folders of the home, itself included, that others than its owner may enter."""
    return [
        f"{stat.S_IMODE(path.stat().st_mode):o} {path}"
        for path in (home, *home.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, timeout=1).status_code == 200
    except httpx.HTTPError:
        return False
