"""The double as a process, as the demonstration runs it, asked at its own paths."""

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
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.doubles.gcp", "--boot", "none"]
    with subprocess.Popen(
        [*command, "--key-file", tmp_path / "key.json"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        yield started
        started.kill()


def test_a_process_tells_its_addresses_and_is_scripted_over_http(
    process: subprocess.Popen[str],
) -> None:
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    key = json.loads(Path(told["key_file"]).read_text())
    assert key["token_uri"] == f"{told['BASELOAD_GCP_ENDPOINT']}/token"
    with httpx.Client(base_url=f"{told['endpoint']}/double/", trust_env=False) as double:
        asked = {"kind": "stockout", "method": "compute.instances.insert", "every": 4}
        assert double.post("faults", json=asked).json()["struck"] == 0
        assert [each["every"] for each in double.get("faults").json()["faults"]] == [4]
        assert double.get("meter").json()["running"] == 0
        settings = {"stock": [["us-west1-a", "nvidia-tesla-t4", 2]], "durations": {"insert_s": 0.5}}
        assert double.post("settings", json=settings).status_code == 200
        assert double.post("settings", json={"durations": {"x": 1}}).status_code == 400
        assert double.get("state").json()["resources"] == {}
        other = double.post("keys", json={"account": "weak", "roles": []}).json()
        assert other["client_email"].startswith("weak@")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
