"""Devices over HTTP: where they may be, what is asked of them, what is refused."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from tests.api.device_rows import configuration, device, edge_region, follows, set_to
from tests.api.http_server import Person, Site, host_key


def body(region_id: str, **more: Any) -> dict[str, Any]:
    return {"region_id": region_id, "name": "shop-1", "minion_id": host_key()[1], **more}


async def test_adding_a_device_starts_its_workflow(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    made = await ada.made("/v1/devices", body(region_id, address="10.1.2.3", port=2222))
    assert (made["status"], made["address"], made["port"]) == ("new", "10.1.2.3", 2222)
    assert (made["inference_status"], made["is_deployed"]) == ("stopped", True)
    assert made["workflow_id"] == f"device/{made['id']}"
    assert site.asked_of(made["id"]) == [("start", None)]
    assert (await ada.get(f"/v1/devices/{made['id']}")).json() == made
    events = (await ada.get(f"/v1/devices/{made['id']}/events")).json()["items"]
    assert [event["type"] for event in events] == ["device.requested"]


@pytest.mark.parametrize(
    ("region", "node", "words"),
    [
        ({"storage_mode": "local"}, None, "has local storage"),
        ({"storage_mode": "central"}, None, "found none"),
        ({"storage_mode": "central"}, "maintenance", "which is maintenance"),
    ],
)
async def test_a_device_needs_a_central_region_with_an_active_storage_node(
    site: Site, ada: Person, region: dict[str, Any], node: str | None, words: str
) -> None:
    if node is None:
        region_id = await ada.region(**region)
    else:
        region_id = await edge_region(site, ada)
        (row,) = site.rows(tables.Node, region_id=region_id)
        site.set(tables.Node, row.id, status=node)
    refused = await ada.post("/v1/devices", body(region_id))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert words in refused.json()["detail"]


async def test_a_minion_id_is_of_one_node_or_one_device(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    asked = body(region_id)
    made = await ada.made("/v1/devices", asked)
    for path, more in (("/v1/devices", {}), ("/v1/nodes", {"services": ["compute"]})):
        refused = await ada.post(path, asked | {"name": "other"} | more)
        assert refused.status_code == 409
        assert made["id"] in refused.json()["detail"]
    (store,) = site.rows(tables.Node, region_id=region_id)
    refused = await ada.post("/v1/devices", body(region_id, minion_id=store.minion_id))
    assert refused.status_code == 409
    assert store.id in refused.json()["detail"]
    site.set(tables.Device, made["id"], status="archived")
    assert (await ada.post("/v1/devices", asked)).status_code == 202


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_a_device_has_a_name_that_no_other_of_its_region_has(site: Site, ada: Person) -> None:
    region_id, other = await edge_region(site, ada), await edge_region(site, ada, "other")
    posts = (ada.post("/v1/devices", body(region_id)) for _ in range(8))
    answers = await asyncio.gather(*posts)
    assert sorted(each.status_code for each in answers) == [202, *[409] * 7]
    (row,) = site.rows(tables.Device, region_id=region_id)
    details = {each.json()["detail"] for each in answers if each.status_code == 409}
    assert details == {f"device shop-1: {row.id} of region home has this name"}
    assert (await ada.post("/v1/devices", body(other))).status_code == 202
    assert (await ada.post("/v1/devices", body(region_id, name="shop-2"))).status_code == 202
    site.set(tables.Device, row.id, status="removing")
    assert (await ada.post("/v1/devices", body(region_id))).status_code == 409
    site.set(tables.Device, row.id, status="archived")
    assert (await ada.post("/v1/devices", body(region_id))).status_code == 202


async def test_an_announcement_wakes_a_device_that_is_not_connected(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    token, (key, minion_id) = await ada.join_token(region_id), host_key()
    made = await ada.made("/v1/devices", body(region_id, minion_id=minion_id, upnp=False))
    said = (await site.announce(token, key, minion_id)).json()
    assert (said["added"], said["upnp"]) == (True, False)
    assert site.asked_of(made["id"]) == [("start", None), ("wake", None)]


async def test_a_connected_device_reads_no_announcement(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    token, (key, minion_id) = await ada.join_token(region_id), host_key()
    made = await ada.made("/v1/devices", body(region_id, minion_id=minion_id))
    site.set(tables.Device, made["id"], status="active")
    assert (await site.announce(token, key, minion_id)).json()["added"]
    assert site.asked_of(made["id"]) == [("start", None)]


async def test_a_machine_that_announced_itself_before_has_its_address(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    token, (key, minion_id) = await ada.join_token(region_id), host_key()
    assert not (await site.announce(token, key, minion_id)).json()["added"]
    made = await ada.made("/v1/devices", body(region_id, minion_id=minion_id))
    assert (made["address"], made["port"]) == ("10.1.2.3", 2222)
    later = datetime.now(UTC)
    site.set(tables.Device, made["id"], status="archived", updated_at=later)
    again = await ada.made("/v1/devices", body(region_id, minion_id=minion_id))
    assert again["address"] is None


async def test_a_device_shows_what_is_wanted_requested_and_running(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    configuration_id = await configuration(ada, region_id)
    await set_to(ada, configuration_id, device_id)
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()
    wanted = {"configuration_id": configuration_id, "configuration_name": "detector", "revision": 1}
    assert (shown["wanted"], shown["running"]) == (wanted, None)
    assert (shown["is_deployed"], shown["requested"]) == (False, None)
    follows(site, device_id, configuration_id, 1)
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()
    assert (shown["running"], shown["is_deployed"]) == (wanted, True)
    await ada.patch(f"/v1/device-configurations/{configuration_id}", {"command": "python v2.py"})
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()
    assert (shown["wanted"]["revision"], shown["is_deployed"]) == (2, False)


async def test_a_list_is_filtered(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    first = await device(site, ada, region_id)
    second = await device(site, ada, region_id, "shop-2", inference_status="failed")
    gone = await device(site, ada, region_id, "shop-3", status="archived")
    configuration_id = await configuration(ada, region_id)
    await set_to(ada, configuration_id, first)

    async def listed(query: str) -> list[str]:
        found = (await ada.get(f"/v1/devices?{query}")).json()["items"]
        return [each["id"] for each in found]

    assert await listed(f"region_id={region_id}") == [second, first]
    assert await listed("status=archived") == [gone]
    assert await listed("inference_status=failed") == [second]
    assert await listed(f"configuration_id={configuration_id}") == [first]
    assert await listed("region_id=reg-other") == []


@pytest.mark.parametrize(("action", "status"), [("activate", "active"), ("maintenance",) * 2])
async def test_a_wanted_status_is_written_and_the_device_woken(
    site: Site, ada: Person, action: str, status: str
) -> None:
    device_id = await device(site, ada, await edge_region(site, ada))
    assert (await ada.post(f"/v1/devices/{device_id}/{action}")).status_code == 202
    (row,) = site.rows(tables.Device, id=device_id)
    assert (row.wanted_status, row.wanted_revision) == (status, 1)
    assert site.asked_of(device_id)[-1] == ("wake", None)


async def test_a_reboot_is_a_signal_to_a_device_that_is_reached(site: Site, ada: Person) -> None:
    device_id = await device(site, ada, await edge_region(site, ada))
    assert (await ada.post(f"/v1/devices/{device_id}/reboot")).status_code == 202
    assert site.asked_of(device_id)[-1] == ("reboot", None)
    site.set(tables.Device, device_id, status="offline")
    refused = await ada.post(f"/v1/devices/{device_id}/reboot")
    assert refused.status_code == 409
    assert "is offline" in refused.json()["detail"]


async def test_a_stop_is_an_assignment_also_for_a_device_that_is_away(
    site: Site, ada: Person
) -> None:
    device_id = await device(site, ada, await edge_region(site, ada), status="offline")
    shown = (await ada.post(f"/v1/devices/{device_id}/stop")).json()
    assert shown["requested"]["revision"] is None
    assert (shown["requested"]["requested_by"], shown["requested"]["followed"]) == (
        ada.user_id,
        False,
    )
    (row,) = site.rows(tables.Device, id=device_id)
    assert row.assignment_number > row.followed_number
    assert row.assignment_configuration_id is None
    assert site.asked_of(device_id)[-1] == ("wake", None)


async def test_a_removed_device_takes_nothing_any_more(site: Site, ada: Person) -> None:
    device_id = await device(site, ada, await edge_region(site, ada))
    assert (await ada.call("DELETE", f"/v1/devices/{device_id}")).status_code == 202
    assert site.asked_of(device_id)[-1][0] == "remove"
    site.set(tables.Device, device_id, status="removing")
    assert (await ada.call("DELETE", f"/v1/devices/{device_id}")).status_code == 202
    assert len(site.asked_of(device_id)) == 2
    for call in ("stop", "activate", "reboot"):
        assert (await ada.post(f"/v1/devices/{device_id}/{call}")).status_code == 409
    patched = await ada.patch(f"/v1/devices/{device_id}", {"configuration_id": None})
    assert patched.status_code == 409


async def test_a_device_has_configurations_of_its_own_region_alone(
    site: Site, ada: Person, bob: Person
) -> None:
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    elsewhere = await configuration(ada, await edge_region(site, ada, "other"))
    foreign = await configuration(bob, await edge_region(site, bob))
    for wrong, words in ((elsewhere, "is of the device's region"), (foreign, "not found")):
        refused = await ada.patch(f"/v1/devices/{device_id}", {"configuration_id": wrong})
        (error,) = refused.json()["errors"]
        assert (refused.status_code, error["field"]) == (422, "configuration_id")
        assert words in error["rule"]


async def test_the_storage_node_and_the_region_of_a_device_stay(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    (store,) = site.rows(tables.Node, region_id=region_id)
    for path in (f"/v1/nodes/{store.id}", f"/v1/regions/{region_id}"):
        refused = await ada.call("DELETE", path)
        assert refused.status_code == 409
    refused = await ada.call("DELETE", f"/v1/nodes/{store.id}?force=true")
    assert refused.status_code == 409
    assert device_id in refused.json()["detail"]
    site.set(tables.Device, device_id, status="archived")
    assert (await ada.call("DELETE", f"/v1/nodes/{store.id}")).status_code == 202


async def test_the_refusal_to_remove_a_region_names_all_that_force_would_end(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    detail = (await ada.call("DELETE", f"/v1/regions/{region_id}")).json()["detail"]
    (store,) = site.rows(tables.Node, region_id=region_id)
    named = f"has nodes store ({store.id}); devices shop-1 ({device_id}); force ends them"
    assert named in detail


async def test_what_a_jetson_says_is_shown(site: Site, ada: Person) -> None:
    jetson = {"model_text": "NVIDIA Jetson AGX Orin", "jetpack": "5.1.2", "power_mode": "MAXN"}
    hardware = {"cpu_count": 8, "memory_bytes": 32 * 2**30, "jetson": jetson}
    device_id = await device(site, ada, await edge_region(site, ada), hardware=hardware)
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()["hardware"]
    assert shown["jetson"]["jetpack"] == "5.1.2"
    assert (shown["jetson"]["power_mode"], shown["memory_bytes"]) == ("MAXN", 32 * 2**30)


async def test_what_waits_of_the_output_of_a_device_is_shown(site: Site, ada: Person) -> None:
    device_id = await device(site, ada, await edge_region(site, ada))
    assert (await ada.get(f"/v1/devices/{device_id}")).json()["output_backlog"] is None
    said = {"waiting_files": 3, "waiting_bytes": 900, "dropped_files": 1, "dropped_bytes": 20}
    site.set(tables.Device, device_id, output_backlog={**said, "away": "no route"})
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()["output_backlog"]
    assert shown == {**said, "away": "no route"}
    site.set(tables.Device, device_id, output_backlog={**said, "away": ""})
    (listed,) = (await ada.get("/v1/devices")).json()["items"]
    assert listed["output_backlog"] == {**said, "away": None}
