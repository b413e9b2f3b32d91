"""The double as a process, asked at its own paths."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.doubles.vastai", "--boot", "none", "--rate", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        yield started
        started.kill()


def test_a_process_tells_its_address_and_is_scripted_over_http(
    process: subprocess.Popen[str],
) -> None:
    assert process.stdout is not None
    shown: dict[str, Any] = json.loads(process.stdout.readline())
    assert shown["BASELOAD_VASTAI_ENDPOINT"] == shown["endpoint"]
    heads = {"Authorization": f"Bearer {shown['VAST_API_KEY']}"}
    with (
        httpx.Client(base_url=f"{shown['endpoint']}/double/", trust_env=False) as double,
        httpx.Client(base_url=shown["endpoint"], headers=heads, trust_env=False) as client,
    ):
        offer = {"id": 9, "gpu_name": "L4", "num_gpus": 1, "gpu_ram": 23034, "dph_base": 0.2}
        assert double.post("settings", json={"offers": [offer]}).status_code == 200
        assert double.post("settings", json={"nothing": 1}).status_code == 400
        fault = {"kind": "failed_but_made", "call": "asks.accept"}
        assert double.post("faults", json=fault).json()["struck"] == 0
        [found] = client.post("/api/v0/bundles/", json={}).json()["offers"]
        body = {"image": "i", "label": "a"}
        failed = client.put(f"/api/v0/asks/{found['id']}/", json=body)
        assert (failed.status_code, failed.json()["success"]) == (400, False)
        double.post("clock", json={"advance_s": 5})
        assert client.put(f"/api/v0/asks/{found['id']}/", json=body).status_code == 200
        assert double.get("meter").json()["running"] == 2
        assert double.get("state").json()["machines"]["rented"] == [9]
        assert double.get("faults").json()["struck"] == {"failed_but_made": 1}
        assert double.get("violations").json() == {"violations": []}
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
