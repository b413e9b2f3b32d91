"""Data on their way, over HTTP: the rows, and what transfers have said lately."""

from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from activities.db import tables
from activities.jobs.data_progress import DataProgressReader, data_progress_reader
from tests.api.federated_rows import federated_job, join
from tests.api.http_server import JOB, Person, Site
from tests.api.running_jobs import running_job
from workflows.contracts.jobs import DataProgress


def half_way(node_id: str, **changes: object) -> DataProgress:
    found = DataProgress(
        worker=0, attempt=1, node_id=node_id, at=datetime.now(UTC),
        bytes_transferred=1 << 30, total_bytes=2 << 30, bytes_per_s=1 << 26,
    )  # fmt: skip
    return found.model_copy(update=changes)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[DataProgress, ...]]:
    """What transfers have said, by their jobs; each test fills it."""
    found: dict[str, tuple[DataProgress, ...]] = {}

    async def of_jobs(
        _self: DataProgressReader, job_ids: Collection[str]
    ) -> dict[str, tuple[DataProgress, ...]]:
        return {job_id: found[job_id] for job_id in job_ids if job_id in found}

    monkeypatch.setattr(type(data_progress_reader), "of_jobs", of_jobs)
    return found


async def test_data_on_their_way_are_shown_to_those_who_see_the_job(
    site: Site, ada: Person, bob: Person, said: dict[str, tuple[DataProgress, ...]]
) -> None:
    node_id = await ada.node(await ada.region(), gpu_type="A100", gpu_count=2, cpu_count=8)
    job_id, other = await running_job(ada, node_id), await running_job(ada, node_id)
    said[job_id] = said[other] = (half_way(node_id),)
    assert (await ada.get("/v1/data-progress")).json()["items"] == []  # both run already
    for each in (job_id, other):
        site.set(tables.Job, each, status="waiting_for_data")
    items = (await ada.get("/v1/data-progress")).json()["items"]
    assert [each["job_id"] for each in items] == [other, job_id]
    (only,) = (await ada.get(f"/v1/data-progress?job_id={job_id}")).json()["items"]
    assert (only["node_name"], only["is_output"], only["left_s"]) == ("n1", False, 16)
    assert (only["bytes_transferred"], only["total_bytes"]) == (1 << 30, 2 << 30)
    assert (await bob.get(f"/v1/data-progress?job_id={job_id}")).json()["items"] == []
    many = "&".join(f"job_id=job-{number}" for number in range(101))
    assert (await ada.get(f"/v1/data-progress?{many}")).status_code == 422


async def test_an_output_whose_size_is_not_known_has_no_total(
    site: Site, ada: Person, said: dict[str, tuple[DataProgress, ...]]
) -> None:
    node_id = await ada.node(await ada.region(), gpu_type="A100", gpu_count=2, cpu_count=8)
    job_id = await running_job(ada, node_id)
    said[job_id] = (half_way(node_id, is_output=True, total_bytes=None),)
    site.set(tables.Job, job_id, status="uploading")
    (item,) = (await ada.get("/v1/data-progress")).json()["items"]
    assert (item["is_output"], item["total_bytes"], item["left_s"]) == (True, None, None)


async def test_the_output_of_a_federated_job_on_its_way_is_for_its_consumer_alone(
    site: Site, ada: Person, bob: Person, said: dict[str, tuple[DataProgress, ...]]
) -> None:
    node_id = await ada.node(await ada.region(), gpu_type="A100", gpu_count=2, cpu_count=8)
    job_id = await running_job(ada, node_id)
    said[job_id] = (half_way(node_id, is_output=True),)
    site.set(tables.Job, job_id, status="uploading")
    (row,) = site.rows(tables.Job, id=job_id)
    join(site, bob, row.project_id, {"job": "read"})
    for federated_id, seen in ((None, 1), (federated_job(ada, account_id=bob.account_id), 0)):
        site.set(tables.Job, job_id, federated_id=federated_id)
        for person, count in ((bob, seen), (ada, 1)):
            assert len((await person.get("/v1/data-progress")).json()["items"]) == count


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_job_that_waits_for_its_data_shows_how_far_each_transfer_is(
    site: Site, ada: Person, bob: Person
) -> None:
    web = {"type": "web", "url": "https://example.test/cats.tar"}
    job = await ada.made("/v1/jobs", JOB | {"data": {"input": web}})
    assert (await ada.get("/v1/data-progress")).json()["items"] == []  # it has not begun
    site.set(
        tables.Dataset, job["input_id"], status="transferring", bytes_transferred=7, total_bytes=28
    )
    (item,) = (await ada.get(f"/v1/data-progress?job_id={job['id']}")).json()["items"]
    assert (item["job_id"], item["artifact_id"]) == (job["id"], job["input_id"])
    assert (item["bytes_transferred"], item["total_bytes"], item["is_output"]) == (7, 28, False)
    assert (item["worker"], item["node_id"], item["bytes_per_s"]) == (None, None, None)
    assert (await bob.get("/v1/data-progress")).json()["items"] == []
    site.set(tables.Job, job["id"], status="canceled")
    assert (await ada.get("/v1/data-progress")).json()["items"] == []
