"""Storage nodes of central regions: first, one, not removed while needed, and replaced."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import Person, Site, host_key


async def add(person: Person, region_id: str, name: str, service: str) -> dict[str, Any]:
    body = {"region_id": region_id, "name": name, "minion_id": host_key()[1]}
    return await person.made("/v1/nodes", body | {"services": [service]})


@pytest.fixture
async def central(site: Site, ada: Person) -> tuple[str, str, str]:
    """A central region with an active storage node and a compute node: their ids."""
    region_id = await ada.region("home", storage_mode="central")
    site.set(tables.Region, region_id, status="healthy")
    store = await add(ada, region_id, "store", "storage")
    site.set(tables.Node, store["id"], status="active")
    worker = await add(ada, region_id, "worker", "compute")
    return region_id, store["id"], worker["id"]


async def test_a_local_region_takes_no_storage_node_and_says_what_to_do(ada: Person) -> None:
    body = {"region_id": await ada.region(), "name": "s", "minion_id": host_key()[1]}
    refused = await ada.post("/v1/nodes", body | {"services": ["storage"]})
    assert refused.status_code == 422
    assert "create a new region with storage_mode central" in refused.json()["detail"]


async def test_a_storage_node_stays_while_others_need_it_even_by_force(
    site: Site, ada: Person, central: tuple[str, str, str]
) -> None:
    _, store, worker = central
    refused = await ada.call("DELETE", f"/v1/nodes/{store}?force=true")
    assert refused.status_code == 409
    assert f"is the storage node of worker ({worker}): replace it" in refused.json()["detail"]
    assert "remove" not in [verb for verb, _ in site.asked_of(store)]
    site.set(tables.Node, worker, status="archived")
    assert (await ada.call("DELETE", f"/v1/nodes/{store}")).status_code == 202


async def test_a_replacement_is_a_node_beside_the_old_one_which_may_go_then(
    site: Site, ada: Person, central: tuple[str, str, str]
) -> None:
    region_id, store, worker = central
    asked = {"name": "store-2", "minion_id": host_key()[1], "address": "10.0.0.8"}
    answer = await ada.post(f"/v1/nodes/{store}/replace", asked)
    new = answer.json()
    assert (answer.status_code, new["name"], new["services"]) == (202, "store-2", ["storage"])
    assert (new["fills_from"], new["address"]) == (store, "10.0.0.8")
    assert [verb for verb, _ in site.asked_of(new["id"])] == ["start"]
    assert site.asked_of(region_id)[-1][0] == "replace"

    again = await ada.post(f"/v1/nodes/{store}/replace", asked | {"minion_id": host_key()[1]})
    assert again.status_code == 409
    assert f"store-2 ({new['id']}), which is new, takes its place" in again.json()["detail"]
    assert (await ada.call("DELETE", f"/v1/nodes/{store}")).status_code == 409
    assert (await ada.call("DELETE", f"/v1/nodes/{new['id']}")).status_code == 202  # Given up.
    site.set(tables.Node, new["id"], status="active")
    assert (await ada.call("DELETE", f"/v1/nodes/{store}")).status_code == 202
    assert (await ada.post(f"/v1/nodes/{worker}/replace", asked)).status_code == 409


async def test_a_replacement_names_its_machine_which_is_no_other_node(
    ada: Person, bob: Person, central: tuple[str, str, str]
) -> None:
    _, store, worker = central
    refused = await ada.post(f"/v1/nodes/{store}/replace")
    assert refused.status_code == 422
    assert "minion_id: is needed" in refused.json()["detail"]
    same = (await ada.get(f"/v1/nodes/{worker}")).json()["minion_id"]
    taken = await ada.post(f"/v1/nodes/{store}/replace", {"name": "s", "minion_id": same})
    assert (taken.status_code, worker in taken.json()["detail"]) == (409, True)
    assert (await bob.post(f"/v1/nodes/{store}/replace")).status_code == 404
