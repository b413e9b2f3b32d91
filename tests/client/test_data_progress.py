"""`baseload ps` and `show` of jobs whose data are on their way."""

import asyncio
from typing import Any

import pytest
from baseload.commands.data_progress import StoreProgress, progress_text

from activities.db import tables
from activities.jobs.data_progress import data_progress_reader
from tests.api.http_server import JOB
from tests.api.running_jobs import running_job
from tests.api.test_data_progress import half_way
from tests.client.conftest import Desk


@pytest.fixture
def job_id(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job half of whose data has come to its node."""

    async def made() -> tuple[str, str]:
        node_id = await desk.person.node(
            await desk.person.region(), gpu_type="A100", gpu_count=2, cpu_count=8
        )
        return node_id, await running_job(desk.person, node_id)

    node_id, job_id = asyncio.run(made())
    desk.person.site.set(tables.Job, job_id, status="waiting_for_data")

    said = {job_id: (half_way(node_id),)}

    async def of_jobs(*_: object) -> object:
        return said

    monkeypatch.setattr(type(data_progress_reader), "of_jobs", of_jobs)
    return job_id


def test_ps_and_show_have_a_bar_the_rate_and_what_is_left(desk: Desk, job_id: str) -> None:
    words = "█████░░░░░ 50% of 2.0 GiB, 64.0 MiB/s, 16 s left"
    heading, row = desk.baseload("ps").out.splitlines()
    assert "DATA" in heading
    assert words in row
    assert f"data on their way  {words}" in desk.baseload("show", job_id).out
    (found,) = desk.json("ps")["items"]
    assert found["data_progress"][0]["bytes_transferred"] == 1 << 30
    assert desk.json("show", job_id)["data_progress"] == found["data_progress"]


def test_ps_has_no_such_column_while_nothing_is_on_its_way(desk: Desk, job_id: str) -> None:
    desk.person.site.set(tables.Job, job_id, status="running")
    assert "DATA" not in desk.baseload("ps").out.splitlines()[0]
    assert desk.json("ps")["items"][0]["data_progress"] == []


def test_a_job_that_waits_for_its_input_shows_how_far_it_is_and_what_it_is(desk: Desk) -> None:
    web = {"type": "web", "url": "https://example.test/cats.tar"}
    job = asyncio.run(desk.person.made("/v1/jobs", JOB | {"data": {"input": web}}))
    dataset_id = job["input_id"]
    values = {"bytes_transferred": 1 << 30, "total_bytes": 2 << 30}
    desk.site.set(tables.Dataset, dataset_id, status="transferring", **values)
    words = "█████░░░░░ 50% of 2.0 GiB"
    assert words in desk.baseload("ps").out
    shown = desk.baseload("show", job["id"]).out.splitlines()
    assert [line.split(None, 4)[-1] for line in shown if line.startswith("data on")] == [words]
    (line,) = [line for line in shown if line.startswith("input ")]
    assert line.split(None, 1)[1] == f"web, {dataset_id}"
    heading, row = desk.baseload("dataset", "ls").out.splitlines()
    assert "MADE FOR" in heading
    assert row.split()[:4] == [dataset_id, f"input-{job['id']}", "transferring", job["id"]]
    fields = desk.baseload("dataset", "show", dataset_id).out.splitlines()
    assert [line.split()[-1] for line in fields if line.startswith("made for")] == [job["id"]]


def worker(done: int, total: int | None, rate: int | None, left_s: int | None) -> dict[str, Any]:
    return {
        "bytes_transferred": done, "total_bytes": total, "bytes_per_s": rate, "left_s": left_s,
    }  # fmt: skip


def test_several_workers_are_one_sum_and_the_slowest_says_what_is_left() -> None:
    both = [worker(1 << 30, 4 << 30, 1 << 20, 3072), worker(0, 4 << 30, None, None)]
    assert progress_text(both) == "█░░░░░░░░░ 12% of 8.0 GiB, 1.0 MiB/s, 51 min 12 s left"


def test_without_a_total_there_is_no_bar() -> None:
    assert progress_text([worker(3 << 20, None, 1 << 20, None)]) == "3.0 MiB, 1.0 MiB/s"
    assert progress_text([worker(0, 0, 0, None)]) == "0 B, 0 B/s"
    assert progress_text([]) is None


def test_a_transfer_into_the_store_has_a_rate_from_the_second_look_on() -> None:
    progress = StoreProgress()
    artifact = {"status": "transferring", "bytes_transferred": 1 << 30, "total_bytes": 4 << 30}
    assert progress.text(artifact, 10.0) == "██░░░░░░░░ 25% of 4.0 GiB"
    artifact["bytes_transferred"] = 2 << 30
    assert progress.text(artifact, 20.0) == "█████░░░░░ 50% of 4.0 GiB, 102.4 MiB/s, 20 s left"
    unknown = artifact | {"total_bytes": None}
    assert progress.text(unknown, 30.0) == "2.0 GiB, 0 B/s"
    assert progress.text({"status": "ready", "bytes_transferred": 1}, 40.0) is None
    assert progress.text({"status": "connecting"}, 50.0) is None
