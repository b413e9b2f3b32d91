"""What runs now, over HTTP: the rows, and what nodes have measured lately."""

from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from activities.db import tables
from activities.nodes.utilisation import UtilisationReader, utilisation_reader
from tests.api.http_server import Person, Site
from tests.api.running_jobs import GPU, RATE, running_job
from workflows.contracts.jobs import run_id
from workflows.contracts.utilisation import GpuUtilisation, NodeUtilisation, RunUtilisation

HARDWARE = {
    "cpu_count": 8, "memory_bytes": 1 << 33, "boot_id": "1",
    "gpus": [
        {"index": 0, "name": "A100", "uuid": GPU}, {"index": 1, "name": "A100", "uuid": "GPU-free"},
    ],
}  # fmt: skip


@pytest.fixture
async def node_id(ada: Person) -> str:
    return await ada.node(
        await ada.region(), gpu_type="A100", gpu_count=2, cpu_count=8, hardware=HARDWARE
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, NodeUtilisation]:
    """What nodes have measured, by their ids; each test fills it."""
    said: dict[str, NodeUtilisation] = {}

    async def of_nodes(
        _self: UtilisationReader, node_ids: Collection[str]
    ) -> dict[str, NodeUtilisation]:
        return {node_id: said[node_id] for node_id in node_ids if node_id in said}

    monkeypatch.setattr(type(utilisation_reader), "of_nodes", of_nodes)
    return said


def of_job(job_id: str) -> NodeUtilisation:
    used = GpuUtilisation(uuid=GPU, percent=87, memory_used_mib=1024, memory_total_mib=81920)
    return NodeUtilisation(
        at=datetime.now(UTC),
        gpus=(used, GpuUtilisation(uuid="GPU-free", percent=99)),
        runs=(
            RunUtilisation(run_id=run_id(job_id, 0, 1), cpu_percent=250.0, memory_bytes=7),
            RunUtilisation(run_id=f"job-{'0' * 26}-0-1", cpu_percent=1.0, memory_bytes=9),
        ),
    )


async def test_a_running_job_shows_what_it_uses_and_its_node_how_much_is_held(
    ada: Person, node_id: str, measured: dict[str, NodeUtilisation]
) -> None:
    job_id = await running_job(ada, node_id)
    measured[node_id] = of_job(job_id)
    found = (await ada.get("/v1/utilisation")).json()
    assert (found["microcredits_per_hour"], found["is_whole"]) == (RATE, True)
    (worker,) = found["workers"]
    assert (worker["job_id"], worker["node_name"], worker["cpu_count"]) == (job_id, "n1", 1)
    assert (worker["cpu_percent"], worker["memory_bytes"]) == (250.0, 7)
    assert worker["memory_limit_bytes"] == 1 << 30
    (gpu,) = worker["gpus"]
    assert (gpu["percent"], gpu["memory_used_bytes"]) == (87, 1 << 30)
    (node,) = found["nodes"]
    assert (node["held_gpu_count"], node["gpu_count"], node["worker_count"]) == (1, 2, 1)
    assert [each["uuid"] for each in node["gpus"]] == [GPU]


async def test_what_was_not_measured_is_null(
    ada: Person, node_id: str, measured: dict[str, NodeUtilisation]
) -> None:
    await running_job(ada, node_id)
    found = (await ada.get("/v1/utilisation")).json()
    (worker,) = found["workers"]
    assert (worker["cpu_percent"], worker["memory_bytes"], worker["measured_at"]) == (None,) * 3
    assert worker["gpus"][0]["percent"] is None
    assert found["nodes"][0]["measured_at"] is None


async def test_a_guest_on_a_node_sees_its_own_job_there_and_nothing_of_the_node(
    site: Site, ada: Person, bob: Person, node_id: str, measured: dict[str, NodeUtilisation]
) -> None:
    job_id = await running_job(bob, node_id)
    measured[node_id] = of_job(job_id)
    guests = (await bob.get("/v1/utilisation")).json()
    assert guests["nodes"] == []
    assert [worker["cpu_percent"] for worker in guests["workers"]] == [250.0]
    assert "GPU-free" not in str(guests)
    owners = (await ada.get("/v1/utilisation")).json()
    assert owners["workers"] == []
    assert owners["microcredits_per_hour"] == 0
    assert owners["nodes"][0]["held_gpu_count"] == 1
    only_jobs = ada.with_key(["jobs:read"])
    assert (await only_jobs.get("/v1/utilisation")).json()["nodes"] == []


async def test_only_jobs_that_run_are_shown(
    site: Site, ada: Person, node_id: str, measured: dict[str, NodeUtilisation]
) -> None:
    job_id = await running_job(ada, node_id)
    site.set(tables.Job, job_id, status="finished")
    assert (await ada.get("/v1/utilisation")).json()["workers"] == []
