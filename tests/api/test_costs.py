"""Costs and usage over HTTP, and what machines have cost on the answers of jobs."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from activities.billing.usage import post_worker_usage
from activities.db import tables
from api.services import costs
from tests.activities.cloud_rows import add_lease
from tests.activities.rows import allocate
from tests.api.http_server import Person, Site
from workflows.contracts.billing import UsageRates, WorkerUsage

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)
RATES = UsageRates(gpu_count=1, microcredits_per_gpu_hour=250_000).model_dump(mode="json")


async def _burst(site: Site, person: Person) -> tuple[str, str]:
    """A job that was charged an hour on a machine leased for it, and the id of its region."""
    region_id = await person.region()
    node_id = await person.node(region_id, "burst", gpu_type="A100", gpu_count=1)
    job_id = await person.job()
    site.set(tables.Node, node_id, type="ephemeral")
    site.set(tables.Job, job_id, rates={"0": RATES}, created_at=NOW - 3 * HOUR)
    with site.database.write() as session:
        region = session.get_one(tables.Region, region_id)
        add_lease(session, region, node_id, began_at=NOW - 2 * HOUR, ended_at=NOW - HOUR / 2,
                  microcredits_per_hour=2_000_000, created_at=NOW - 2 * HOUR)  # fmt: skip
        node = session.get_one(tables.Node, node_id)
        held = allocate(session, session.get_one(tables.Job, job_id), node, 0)
        held.created_at, held.rates = NOW - 2 * HOUR, RATES
        session.flush()
        usage = WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=NOW - 2 * HOUR, through_s=3600
        )
        post_worker_usage(session, usage)
    return job_id, region_id


async def test_costs_are_charges_and_leased_machines(site: Site, ada: Person, bob: Person) -> None:
    _, region_id = await _burst(site, ada)
    query = {"begins_at": (NOW - 48 * HOUR).isoformat(), "ends_at": NOW.isoformat()}
    for by in ("day", "provider", "project", "region"):
        found = (await ada.get("/v1/costs", params=query | {"by": by})).json()
        sums = [found[f"{name}_microcredits"] for name in ("charged", "machine", "total")]
        assert sums == [250_000, 3_000_000, 3_250_000], by
        assert all(item["name"] for item in found["items"]) is (by != "day")
    [item] = (await ada.get("/v1/costs", params=query | {"by": "region"})).json()["items"]
    assert (item["key"], item["machine_cost_is_estimate"]) == (region_id, False)
    assert (await bob.get("/v1/costs", params=query)).json()["items"] == []
    assert (await ada.get("/v1/costs", params={"by": "bogus"})).status_code == 422


async def test_the_sums_of_costs_are_of_more_items_than_are_shown(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _burst(site, ada)
    whole = (await ada.get("/v1/costs", params={"by": "project"})).json()
    assert whole["is_whole"]
    monkeypatch.setattr(costs, "MOST_ITEMS", 0)
    part = (await ada.get("/v1/costs", params={"by": "project"})).json()
    assert (part["items"], part["is_whole"]) == ([], False)
    assert part["total_microcredits"] == whole["total_microcredits"] == 3_250_000


async def test_usage_says_who_used_what(site: Site, ada: Person, bob: Person) -> None:
    await _burst(site, ada)
    found = (await ada.get("/v1/usage", params={"by": "month"})).json()
    assert found["is_whole"]
    [line] = found["items"][-1:]
    assert (line["consumer_account_id"], line["project_id"]) == (ada.account_id, ada.project_id)
    assert sum(each["gpu_seconds"] for each in found["items"]) == 3600
    assert sum(each["charged_microcredits"] for each in found["items"]) == 250_000
    assert (await bob.get("/v1/usage")).json()["items"] == []


async def test_a_job_says_what_its_machine_has_cost(site: Site, ada: Person) -> None:
    job_id, _ = await _burst(site, ada)
    own = await ada.job()
    found = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert found["machine_cost_microcredits"] == 3_000_000
    assert found["machine_cost_is_estimate"] is False
    assert found["machine_microcredits_per_hour"] == 2_000_000
    found = (await ada.get(f"/v1/jobs/{own}")).json()
    assert found["machine_cost_microcredits"] == 0
    assert found["machine_microcredits_per_hour"] is None


async def test_a_list_of_jobs_asks_once_for_all_machine_costs(site: Site, ada: Person) -> None:
    for _ in range(3):
        await ada.job()
    asked: list[str] = []

    def note(_c: object, _u: object, statement: str, *_: object) -> None:
        asked.append(statement)

    with site.database.read() as session:
        engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    assert len((await ada.get("/v1/jobs")).json()["items"]) == 3
    event.remove(engine, "before_cursor_execute", note)
    assert sum("JOIN leases" in statement for statement in asked) == 1
