"""What jobs show beside their rows: cost, time, nodes, addresses, people."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from activities.db import tables
from activities.db.ids import new_id
from tests.api.http_server import Person, Site
from tests.api.running_jobs import RATE, running_job


@pytest.fixture
async def node_id(ada: Person) -> str:
    return await ada.node(await ada.region(), gpu_type="A100", gpu_count=8)


async def test_a_running_job_says_what_it_costs_before_anything_is_posted(
    ada: Person, node_id: str
) -> None:
    job_id = await running_job(ada, node_id)
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    charges = (await ada.get(f"/v1/jobs/{job_id}/charges")).json()
    for found in (job, charges):
        assert found["charged_microcredits"] == 0
        assert RATE // 2 <= found["unposted_microcredits"] < RATE // 2 + RATE // 60
        assert found["microcredits_per_hour"] == RATE
    assert 1800 <= job["elapsed_s"] < 1860


async def test_a_job_that_has_ended_shows_how_long_it_has_run_and_no_rate(
    site: Site, ada: Person, node_id: str
) -> None:
    job_id = await running_job(ada, node_id)
    (row,) = site.rows(tables.Job, id=job_id)
    began = datetime.fromisoformat(row.workers[0]["started_at"])
    ended = {"finished_at": (began + timedelta(seconds=90)).isoformat(), "status": "exited"}
    site.set(tables.Job, job_id, status="finished", workers=[row.workers[0] | ended])
    site.set(tables.Allocation, site.rows(tables.Allocation)[0].id, released_at=datetime.now(UTC))
    with site.database.write() as session:
        session.get_one(tables.UsageMeter, (job_id, 0, 1)).running = False
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert (job["elapsed_s"], job["microcredits_per_hour"]) == (90, None)
    assert job["unposted_microcredits"] == 0


async def test_a_list_asks_the_database_as_often_for_one_job_as_for_many(
    site: Site, ada: Person, node_id: str
) -> None:
    asked: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    numbers = []
    # The first request of a key also notes that the key is used.
    await ada.get("/v1/jobs")
    for _ in range(2):
        for _ in range(3):
            await running_job(ada, node_id, port=None)
            for row in site.rows(tables.Allocation):
                site.set(tables.Allocation, row.id, released_at=datetime.now(UTC))
        with site.database.connection() as connection:
            engine = connection.engine
        event.listen(engine, "before_cursor_execute", count)
        jobs = (await ada.get("/v1/jobs")).json()["items"]
        event.remove(engine, "before_cursor_execute", count)
        assert {job["workers"][0]["node_name"] for job in jobs} == {"n1"}
        numbers.append((len(jobs), len(asked)))
        asked.clear()
    (few, for_few), (many, for_many) = numbers
    assert (few, many) == (3, 6)
    assert for_few == for_many


async def test_a_service_that_runs_says_where_it_serves_its_port(
    site: Site, ada: Person, node_id: str
) -> None:
    job_id = await running_job(ada, node_id, type="notebook", port=8899)
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert job["workers"][0]["address"] == "10.0.0.1:8899"
    site.set(tables.Node, node_id, host="fd00::7")
    moved = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert moved["workers"][0]["address"] == "[fd00::7]:8899"
    site.set(tables.Job, job_id, status="stopped")
    stopped = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert stopped["workers"][0]["address"] is None
    assert stopped["workers"][0]["node_name"] == "n1"


async def test_a_job_without_a_port_has_no_address(ada: Person, node_id: str) -> None:
    job_id = await running_job(ada, node_id)
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert job["workers"][0]["address"] is None


async def test_reasons_and_events_name_people_of_the_readers_own_account_alone(
    site: Site, ada: Person, bob: Person
) -> None:
    project = await ada.made("/v1/projects", {"name": "shared"})
    job_id = await ada.job(project_id=project["id"])
    site.write(
        tables.ProjectMember(
            project_id=project["id"], user_id=bob.user_id, permissions={"job": "read"},
            created_at=datetime.now(UTC),
        ),
        tables.EventRow(
            id=new_id("evt"), account_id=ada.account_id, resource_id=job_id, sequence=2,
            type="job.canceled", message=f"asked for by {ada.user_id}", details={},
            at=datetime.now(UTC),
        ),
    )  # fmt: skip
    reason = f"asked for by {ada.user_id}"
    site.set(tables.Job, job_id, status="canceled", status_reason=reason)
    eve_id = new_id("usr")
    eve = replace(ada, user_id=eve_id)
    site.write(
        tables.User(
            id=eve_id, account_id=ada.account_id, email="eve@example.test", role="member",
            created_at=datetime.now(UTC),
        )
    )  # fmt: skip
    herself = "asked for by ada@example.test"
    assert await told(ada.with_key(["jobs:read"]), job_id) == herself
    assert await told(eve.with_key(["read"]), job_id) == herself
    assert await told(eve.with_key(["jobs:read"]), job_id) == "asked for by a member"
    assert await told(bob, job_id) == "asked for by a member"


async def told(person: Person, job_id: str) -> str:
    """The reason of a job's status, which its newest event says too."""
    job = (await person.get(f"/v1/jobs/{job_id}")).json()
    newest = (await person.get(f"/v1/jobs/{job_id}/events")).json()["items"][0]
    assert newest["message"] == job["status_reason"]
    return str(job["status_reason"])


async def test_statuses_are_asked_for_as_they_are_shown(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    site.set(tables.Job, job_id, status="waiting_for_resources")
    for words in ("waiting for resources", "waiting_for_resources"):
        found = (await ada.get("/v1/jobs", params={"status": words})).json()["items"]
        assert [each["id"] for each in found] == [job_id]
    assert (await ada.get("/v1/jobs", params={"status": "running"})).json()["items"] == []
