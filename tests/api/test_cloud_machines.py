"""Regions in a cloud and nodes that are made there, over HTTP; the quotas are asked live."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from activities.db import tables
from activities.nodes.wanted import find_wanted_status
from activities.providers.gcp.session import session_for
from activities.settings import settings
from tests.api.http_server import Person, Site, host_key
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.fixtures import gcp
from workflows.contracts.machines import MachineClaim, MachineSpec
from workflows.contracts.statuses import ProviderKind
from workflows.effects.nodes import FindWantedStatus

__all__ = ["gcp"]
CLAIM = MachineClaim(
    provider_id="prv-1",
    provider_kind=ProviderKind.GCP,
    offers=(),
    spec=MachineSpec(lifetime_s=3600),
)


@pytest.fixture(autouse=True)
def at_google(gcp: GcpDouble) -> Iterator[None]:
    """The API asks the double, and remembers no other."""
    settings.cache_clear()
    session_for.cache_clear()
    yield
    session_for.cache_clear()


@pytest.fixture
async def provider_id(site: Site, ada: Person, gcp: GcpDouble) -> str:
    """One of Google that is ready."""
    body = {"kind": "gcp", "credentials": service_account_key(gcp)}
    made: str = (await ada.made("/v1/providers", body))["id"]
    site.set(tables.Provider, made, status="ready")
    return made


async def asked(
    person: Person, provider_id: str, name: str = "burst", **more: Any
) -> httpx.Response:
    body = {"provider_id": provider_id, "name": name, "cloud_region": "us-central1", **more}
    return await person.post("/v1/regions", body)


async def created(site: Site, person: Person, provider_id: str) -> str:
    """A region that is healthy."""
    response = await asked(person, provider_id)
    assert response.status_code == 202, response.text
    region_id: str = response.json()["id"]
    site.set(tables.Region, region_id, status="healthy")
    return region_id


def mistakes(response: httpx.Response) -> dict[str, str]:
    assert response.status_code == 422, response.text
    return {each["field"]: each["rule"] for each in response.json()["errors"]}


async def test_a_region_keeps_the_class_of_its_storage_node_and_no_machine_or_price(
    site: Site, ada: Person, provider_id: str
) -> None:
    made = (await asked(ada, provider_id, storage_node_class="medium")).json()
    assert (made["cloud_region"], made["storage_node_class"]) == ("us-central1", "medium")
    assert made["storage_mode"] == "central"
    assert site.asked_of(made["id"]) == [("start", None)]
    (row,) = site.rows(tables.Region, id=made["id"])
    assert (row.storage_node_class, row.options) == ("medium", {})


async def test_a_region_where_nothing_would_run_is_refused_with_what_to_raise(
    site: Site, ada: Person, gcp: GcpDouble, provider_id: str
) -> None:
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    response = await asked(ada, provider_id)
    assert (response.status_code, response.json()["code"]) == (409, "quota-exhausted")
    told = response.json()["detail"]
    assert "T4: raise GPUS_ALL_REGIONS in all regions to 1 (now 0, of which 0 are used)" in told
    assert "console.cloud.google.com" in told
    assert site.rows(tables.Region) == []


async def test_a_region_asked_for_again_is_answered_as_before_although_quotas_are_gone(
    ada: Person, gcp: GcpDouble, provider_id: str
) -> None:
    body = {"provider_id": provider_id, "name": "burst", "cloud_region": "us-central1"}
    once = {"Idempotency-Key": "k1"}
    first = await ada.post("/v1/regions", body, headers=once)
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    again = await ada.post("/v1/regions", body, headers=once)
    assert (again.status_code, again.json()) == (202, first.json())


async def test_there_is_one_region_for_each_of_the_clouds(
    site: Site, ada: Person, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    again = await asked(ada, provider_id, name="other")
    assert again.status_code == 409
    assert region_id in again.json()["detail"]
    assert (await asked(ada, provider_id, "far", cloud_region="us-west1")).status_code == 202
    site.set(tables.Region, region_id, status="archived")
    assert (await asked(ada, provider_id, name="other")).status_code == 202


async def test_two_projects_of_an_account_may_each_have_a_region_in_one_cloud_region(
    site: Site, ada: Person, gcp: GcpDouble, provider_id: str
) -> None:
    await created(site, ada, provider_id)
    second = gcp.cloud.add_project("second-4711")
    body = {"kind": "gcp", "credentials": service_account_key(gcp, project=second)}
    other_id: str = (await ada.made("/v1/providers", body))["id"]
    site.set(tables.Provider, other_id, status="ready")
    other = await asked(ada, other_id, name="other")
    assert other.status_code == 202, other.text
    again = await asked(ada, other_id, name="third")
    assert other.json()["id"] in again.json()["detail"]


async def test_internal_addresses_are_used_where_the_region_says_so(
    site: Site, ada: Person, provider_id: str
) -> None:
    made = (await asked(ada, provider_id, uses_internal_addresses=True)).json()
    assert made["uses_internal_addresses"] is True
    other = (await asked(ada, provider_id, "far", cloud_region="us-west1")).json()
    assert other["uses_internal_addresses"] is False


async def test_what_is_wrong_with_a_region_is_told_together(ada: Person, provider_id: str) -> None:
    wrong: dict[str, Any] = {
        "cloud_region": "mars-north1",
        "storage_node_class": "huge",
        "public": True,
    }
    told = mistakes(await asked(ada, provider_id, **wrong))
    assert told["cloud_region"].startswith("is one of us-central1, europe-west4")
    assert told["storage_node_class"] == "is one of micro, small, medium, large, xlarge"
    assert told["public"] == "is for regions of machines you own"
    assert "cloud_region" in mistakes(await asked(ada, provider_id, cloud_region=None))


async def test_a_region_of_ones_own_machines_is_in_no_cloud(ada: Person) -> None:
    told = mistakes(await asked(ada, await ada.provider(), storage_node_class="small"))
    assert set(told) == {"cloud_region", "storage_node_class"}


async def test_the_quotas_of_a_region_are_those_of_its_cloud_now(
    site: Site, ada: Person, bob: Person, gcp: GcpDouble, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    gcp.project.limits["us-central1"] = {"NVIDIA_T4_GPUS": 3.0}
    found = (await ada.get(f"/v1/regions/{region_id}/quotas")).json()["items"]
    (t4,) = [each for each in found if each["gpu_type"] == "T4" and not each["spot"]]
    assert (t4["limiting"], t4["limit"], t4["used"], t4["runnable_jobs"]) == (
        "NVIDIA_T4_GPUS", 3, 0, 3,
    )  # fmt: skip
    assert (await bob.get(f"/v1/regions/{region_id}/quotas")).status_code == 404


async def test_a_permanent_node_is_made_of_the_machine_that_has_its_gpus(
    site: Site, ada: Person, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    body = {"region_id": region_id, "name": "trainer", "gpus": "T4:2", "disk_size_gb": 300}
    made = await ada.made("/v1/nodes", body)
    assert (made["leased"], made["minion_id"], made["type"]) == (True, "", "permanent")
    (row,) = site.rows(tables.Node, id=made["id"])
    claim = MachineClaim.model_validate(row.machine)
    assert {offer.machine_type for offer in claim.offers} == {"n1-standard-16"}
    assert {(offer.gpu_type, offer.gpu_count, offer.spot) for offer in claim.offers} == {
        ("T4", 2, False)
    }
    assert claim.spec.disk_size_gb == 300
    assert site.asked_of(made["id"]) == [("start", None)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "gpus"),
        ({"gpus": "T4:3"}, "gpus"),
        ({"gpus": "H100:1"}, "gpus"),
        ({"gpus": "RTX4090:1"}, "gpus"),
        ({"gpus": "cpu"}, "gpus"),
        ({"gpus": "T4:1", "minion_id": host_key()[1]}, "minion_id"),
        ({"gpus": "T4:1", "address": "10.0.0.1"}, "address"),
        ({"gpus": "T4:1", "services": ["storage"]}, "services"),
    ],
)
async def test_what_no_machine_of_the_cloud_is_is_refused(
    site: Site, ada: Person, provider_id: str, body: dict[str, Any], field: str
) -> None:
    region_id = await created(site, ada, provider_id)
    response = await ada.post("/v1/nodes", {"region_id": region_id, "name": "n", **body})
    assert set(mistakes(response)) == {field}
    assert site.rows(tables.Node) == []


async def test_ones_own_machine_has_a_minion_id_and_is_not_made(ada: Person) -> None:
    body = {"region_id": await ada.region(), "name": "n"}
    assert "console" in mistakes(await ada.post("/v1/nodes", body))["minion_id"]
    both = body | {"minion_id": host_key()[1], "gpus": "T4:1"}
    assert set(mistakes(await ada.post("/v1/nodes", both))) == {"gpus"}


def storage_node(site: Site, person: Person, region_id: str, **values: Any) -> str:
    """As the region's workflow adds it."""
    (region,) = site.rows(tables.Region, id=region_id)
    columns = {
        "id": "nod-store", "name": "burst-storage", "account_id": person.account_id,
        "region_id": region_id, "minion_id": "", "services": ["storage"], "status": "active",
        "machine": CLAIM.model_dump(mode="json"), "requirements": [],
        "created_at": region.created_at, "updated_at": region.created_at, **values,
    }  # fmt: skip
    site.write(tables.Node(**columns))
    return str(columns["id"])


async def test_storage_is_replaced_by_its_region_and_not_removed_alone(
    site: Site, ada: Person, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    node_id = storage_node(site, ada, region_id)
    refused = await ada.call("DELETE", f"/v1/nodes/{node_id}?force=true")
    assert refused.status_code == 409
    assert "replace it, or remove the region" in refused.json()["detail"]
    assert (await ada.post(f"/v1/nodes/{node_id}/replace")).status_code == 202
    assert site.asked_of(region_id)[-1] == ("replace", {"requested_by": ada.user_id, "node_id": ""})
    assert site.asked_of(node_id) == []

    worker = storage_node(site, ada, region_id, id="nod-w", services=["compute"])
    assert (await ada.post(f"/v1/nodes/{worker}/replace")).status_code == 409


async def test_a_region_is_removed_with_its_own_storage_and_with_others_nodes_by_force(
    site: Site, ada: Person, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    storage_node(site, ada, region_id)
    worker = storage_node(site, ada, region_id, id="nod-w", name="w", services=["compute"])
    refused = await ada.call("DELETE", f"/v1/regions/{region_id}")
    assert "has nodes w (nod-w); force" in refused.json()["detail"]
    site.set(tables.Node, worker, status="archived")
    assert (await ada.call("DELETE", f"/v1/regions/{region_id}")).status_code == 202


@pytest.mark.parametrize("values", [{"type": "ephemeral"}, {"status": "removing"}])
async def test_a_region_is_removed_right_after_a_job_whose_machine_still_leaves(
    site: Site, ada: Person, provider_id: str, values: dict[str, str]
) -> None:
    region_id = await created(site, ada, provider_id)
    storage_node(site, ada, region_id, id="nod-w", services=["compute"], **values)
    assert (await ada.call("DELETE", f"/v1/regions/{region_id}")).status_code == 202
    assert site.asked_of(region_id)[-1] == (
        "remove", {"force": False, "requested_by": ada.user_id, "reschedules": False},
    )  # fmt: skip


async def test_a_node_that_failed_for_want_of_a_machine_is_activated_by_getting_another(
    site: Site, ada: Person, provider_id: str
) -> None:
    region_id = await created(site, ada, provider_id)
    node_id = storage_node(site, ada, region_id, services=["compute"], status="failed")
    assert (await ada.post(f"/v1/nodes/{node_id}/activate")).status_code == 202
    assert site.asked_of(node_id) == [("wake", None)]
    wanted = find_wanted_status(FindWantedStatus(node_id=node_id))
    assert wanted.status == "active"
