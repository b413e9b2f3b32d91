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
    command = [sys.executable, "-m", "tests.doubles.runpod", "--boot", "none", "--rate", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        yield started
        started.kill()


def test_a_process_tells_its_address_and_is_scripted_over_http(
    process: subprocess.Popen[str],
) -> None:
    assert process.stdout is not None
    shown: dict[str, Any] = json.loads(process.stdout.readline())
    assert shown["BASELOAD_RUNPOD_ENDPOINT"] == shown["endpoint"]
    heads = {"Authorization": f"Bearer {shown['RUNPOD_API_KEY']}"}
    with (
        httpx.Client(base_url=f"{shown['endpoint']}/double/", trust_env=False) as double,
        httpx.Client(base_url=shown["endpoint"], headers=heads, trust_env=False) as client,
    ):
        fault = {"kind": "no_capacity", "call": "pods.create", "every": 4}
        assert double.post("faults", json=fault).json()["struck"] == 0
        assert double.post("faults", json={"away_s": 5}).status_code == 200
        with pytest.raises(httpx.TransportError):
            client.get("/v2/pods")
        double.post("clock", json={"advance_s": 5})
        body = {"name": "a", "image": "i", "gpu": {"id": "NVIDIA A40"}}
        assert client.post("/v2/pods", json=body).status_code == 201
        assert double.get("meter").json()["running"] == 1
        assert double.post("events", json={"event": "stop_by_hand", "name": "a"}).status_code == 200
        assert double.get("state").json()["machines"]["pods"][0]["status"] == "EXITED"
        assert double.post("events", json={"event": "x", "name": "a"}).status_code == 400
        free = {"free": [["NVIDIA A40", "SECURE", 0]], "durations": {"starting_s": 1}}
        assert double.post("settings", json=free).status_code == 200
        assert double.post("settings", json={"durations": {"x": 1}}).status_code == 400
        assert client.post("/v2/pods", json=body).status_code == 400
        assert double.get("calls").json()["calls"] == ["pods.create", "pods.create"]
        assert double.get("violations").json() == {"violations": []}
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
