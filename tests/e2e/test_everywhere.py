"""One job file on machines of every provider kind: the same output and the same log everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.every_provider import KINDS, EveryProvider, every_provider
from tests.lab.machines import Lab
from workers.runner.settings import CHECKOUT

pytestmark = pytest.mark.timeout(600)

JOB_FILE = Path(__file__).parent / "job_everywhere/job.yaml"
OPTIONS = {"local": ("--gpus", "cpu")}
"""A host that tests run on may have no GPU to lend."""
EPOCHS = 5


@pytest.fixture(scope="module")
def every(lab: Lab) -> Iterator[EveryProvider]:
    with every_provider(lab) as found:
        yield found


def baseload(every: EveryProvider, *words: str | Path) -> str:
    """What the command prints to its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "baseload", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(every.stack.home),
            "PYTHONPATH": str(CHECKOUT / "client/src"),
            "BASELOAD_API": every.stack.url,
            "BASELOAD_API_KEY": every.stack.administrator_key,
            "BASELOAD_ALLOW_PLAIN_HTTP": "1",
        },
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def test_one_job_file_has_the_same_output_and_log_on_every_kind_of_provider(
    every: EveryProvider, tmp_path: Path
) -> None:
    before = JOB_FILE.read_bytes()
    jobs = {kind: submitted(every, kind) for kind in KINDS}
    for job_id in jobs.values():
        every.platform.until_status(f"/v1/jobs/{job_id}", "finished", limit_s=300)
    logs = {kind: baseload(every, "logs", job_id) for kind, job_id in jobs.items()}
    files = {kind: digests(every, job_id, tmp_path / kind) for kind, job_id in jobs.items()}
    assert JOB_FILE.read_bytes() == before
    assert logs == dict.fromkeys(KINDS, logs["physical"])
    assert files == dict.fromkeys(KINDS, files["physical"])
    assert len(logs["physical"].splitlines()) == EPOCHS, logs["physical"]
    assert set(files["physical"]) == {"model.json", "weights.bin"}
    assert {kind: kind_of(every, job_id) for kind, job_id in jobs.items()} == {k: k for k in KINDS}
    for kind, job_id in jobs.items():
        [worker] = every.platform.get(f"/v1/jobs/{job_id}")["workers"]
        if kind != "physical":
            every.platform.until_status(f"/v1/leases/{worker['lease_id']}", "released")
    assert {market.kind: market.violations for market in every.markets if market.violations} == {}


def submitted(every: EveryProvider, kind: str) -> str:
    """Submit the file to one kind of provider. The id of the job."""
    where = ("--provider", kind, *OPTIONS.get(kind, ()))
    return str(json.loads(baseload(every, "submit", JOB_FILE, *where, "--json"))["id"])


def digests(every: EveryProvider, job_id: str, to: Path) -> dict[str, str]:
    """The SHA-256 of each file of a job's output, by name, as the command unpacks them."""
    names = json.loads(baseload(every, "output", job_id, "--to", to, "--json"))["files"]
    return {name: hashlib.sha256((to / name).read_bytes()).hexdigest() for name in names}


def kind_of(every: EveryProvider, job_id: str) -> str:
    """The kind of the provider whose machine has run a job."""
    [worker] = every.platform.get(f"/v1/jobs/{job_id}")["workers"]
    node = every.platform.get(f"/v1/nodes/{worker['node_id']}")
    region = every.platform.get(f"/v1/regions/{node['region_id']}")
    return str(every.platform.get(f"/v1/providers/{region['provider_id']}")["kind"])
