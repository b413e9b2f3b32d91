"""Machines that cost money, as their account sees them, and ended by a person."""

from datetime import UTC, datetime, timedelta
from typing import Any

from activities.db import tables
from tests.api.http_server import Person, Site
from workflows.contracts.machines import MachineOffer, MachineSpec

OFFER = MachineOffer(
    zone="us-central1-a",
    machine_type="a2-highgpu-1g",
    gpu_type="A100",
    gpu_count=1,
    microcredits_per_hour=3_600_000,
    price_is_estimate=True,
)
BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)


def lease_row(region: tables.Region, lease_id: str, **values: Any) -> tables.Lease:
    """A lease that is ready, of a machine in the cloud."""
    row = {
        "id": lease_id,
        "account_id": region.account_id,
        "name": f"baseload-{lease_id}",
        "status": "ready",
        "region_id": region.id,
        "provider_id": region.provider_id,
        "provider_kind": "gcp",
        "holder_id": "job-1",
        "offers": [OFFER.model_dump(mode="json")],
        "offer": OFFER.model_dump(mode="json"),
        "spec": MachineSpec(lifetime_s=3600).model_dump(mode="json"),
        "deadline": BEGAN + timedelta(hours=9),
        "began_at": BEGAN,
        "created_at": BEGAN,
        "updated_at": BEGAN,
        **values,
    }
    return tables.Lease(**row)


async def lease(site: Site, owner: Person, lease_id: str = "lea-1", **values: Any) -> None:
    (region,) = site.rows(tables.Region, id=await owner.region(lease_id))
    site.write(lease_row(region, lease_id, **values))


async def test_a_lease_shows_what_it_has_cost_to_the_second(site: Site, ada: Person) -> None:
    await lease(site, ada, ended_at=BEGAN + timedelta(minutes=30, seconds=1))
    shown = (await ada.get("/v1/leases/lea-1")).json()
    assert (shown["seconds"], shown["cost_microcredits"]) == (1801, 1_801_000)
    assert shown["price_is_estimate"]
    assert shown["offer"]["zone"] == "us-central1-a"
    assert shown["workflow_id"] == "lease/lea-1"


async def test_a_machine_that_was_never_there_costs_nothing(site: Site, ada: Person) -> None:
    await lease(site, ada, status="refused", offer=None, began_at=None)
    shown = (await ada.get("/v1/leases/lea-1")).json()
    assert (shown["seconds"], shown["cost_microcredits"]) == (0, 0)


async def test_live_leases_are_those_that_may_still_cost(site: Site, ada: Person) -> None:
    await lease(site, ada, "lea-1", status="released")
    await lease(site, ada, "lea-2", status="releasing")
    live = (await ada.get("/v1/leases?live=true")).json()["items"]
    assert [item["id"] for item in live] == ["lea-2"]
    assert len((await ada.get("/v1/leases")).json()["items"]) == 2


async def test_a_lease_of_others_is_not_there(site: Site, ada: Person, bob: Person) -> None:
    await lease(site, ada)
    assert (await bob.get("/v1/leases")).json()["items"] == []
    assert (await bob.get("/v1/leases/lea-1")).status_code == 404
    assert (await bob.call("DELETE", "/v1/leases/lea-1")).status_code == 404
    assert site.rows(tables.OutboxRow, resource_id="lea-1") == []


async def test_a_person_ends_a_machine_and_an_ended_one_is_left_alone(
    site: Site, ada: Person
) -> None:
    await lease(site, ada)
    assert (await ada.call("DELETE", "/v1/leases/lea-1")).status_code == 202
    (asked,) = site.rows(tables.OutboxRow, resource_id="lea-1")
    assert asked.verb == "release"
    assert asked.argument == {
        "reason": f"killed by {ada.user_id}",
        "by_holder": False,
        "by_person": True,
    }
    site.set(tables.Lease, "lea-1", status="released")
    assert (await ada.call("DELETE", "/v1/leases/lea-1")).status_code == 202
    assert len(site.rows(tables.OutboxRow, resource_id="lea-1")) == 1
