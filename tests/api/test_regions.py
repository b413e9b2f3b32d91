"""Providers, regions and nodes over HTTP."""

from typing import Any

import httpx
import pytest

from activities.db import tables
from activities.nodes.wanted import find_wanted_status
from activities.storage.idle_workload import open_idle_workload
from tests.api.http_server import Person, Site, host_key
from workflows.contracts.statuses import ProviderKind
from workflows.effects.nodes import FindWantedStatus
from workflows.rules.catalogue.providers import TRAITS


async def test_enabling_a_provider_writes_a_row_and_asks_its_workflow_to_start(
    site: Site, ada: Person
) -> None:
    response = await ada.post("/v1/providers", {"kind": "physical"})
    assert response.status_code == 202
    made = response.json()
    assert made["status"] == "new"
    assert made["workflow_id"] == f"provider/{made['id']}"
    assert site.asked_of(made["id"]) == [("start", None)]
    await site.settled()
    assert len(site.handed_over) == 1


async def test_a_change_is_taken_while_temporal_is_down_and_waits_as_a_row(
    site: Site, ada: Person
) -> None:
    site.temporal_is_up = False
    response = await ada.post("/v1/providers", {"kind": "physical"})
    assert response.status_code == 202
    await site.settled()
    waiting = site.rows(tables.OutboxRow, resource_id=response.json()["id"])
    assert [(row.verb, row.delivered_at) for row in waiting] == [("start", None)]


async def test_other_kinds_of_providers_are_refused_by_rule(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TRAITS, ProviderKind.COLAB)
    response = await ada.post("/v1/providers", {"kind": "colab", "payment_mode": "stripe"})
    assert response.status_code == 422
    told = {error["field"]: error for error in response.json()["errors"]}
    assert "not yet available" in told["kind"]["rule"]
    assert told["kind"]["value"] == "colab"
    assert "not yet available" in told["payment_mode"]["rule"]


async def test_only_an_administrator_waives_a_fee(ada: Person) -> None:
    body = {"kind": "physical", "waive_usage_fee": True}
    assert (await ada.post("/v1/providers", body)).status_code == 403


async def test_what_is_for_rented_machines_alone_is_refused_for_own_ones(admin: Person) -> None:
    wanted = {"waive_usage_fee": True, "preferred_credits_microcredits": 25_000_000}
    response = await admin.post("/v1/providers", {"kind": "physical"} | wanted)
    assert response.status_code == 422
    told = {error["field"]: error["rule"] for error in response.json()["errors"]}
    assert told == dict.fromkeys(wanted, "is not available yet for physical")
    assert (await admin.get("/v1/providers")).json()["items"] == []


WORKLOAD = {"command": "work --to $BASELOAD_WALLET_XMR", "environment": {"POOL": "pool"}}


async def test_an_idle_workload_needs_one_of_the_account_with_a_wallet(ada: Person) -> None:
    body = {"region_id": await ada.region(), "name": "n1", "minion_id": host_key()[1]}
    response = await ada.post("/v1/nodes", body | {"mining": True})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    rule = "needs idle_workload and wallets of the account: PATCH /v1/account"
    assert (error["field"], error["rule"]) == ("mining", rule)


async def test_an_idle_workload_is_switched_by_its_node_and_reaches_it_sealed(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region()
    node_id = await ada.node(region_id)
    settings = {"idle_workload": WORKLOAD, "wallets": {"XMR": "4abc"}}
    shown = (await ada.patch("/v1/account", settings)).json()
    assert (shown["wallets"], shown["idle_workload"]["command"]) == (
        {"XMR": "4abc"}, WORKLOAD["command"],
    )  # fmt: skip
    assert find_wanted_status(FindWantedStatus(node_id=node_id)).idle_workload is None
    node = (await ada.patch(f"/v1/nodes/{node_id}", {"mining": True})).json()
    assert (node["mining"], node["idle_workload"]) == (True, None)
    assert ("wake", None) in site.asked_of(node_id)
    wanted = find_wanted_status(FindWantedStatus(node_id=node_id)).idle_workload
    assert wanted is not None
    assert wanted.revision == "1"
    opened = open_idle_workload(wanted.sealed, region_id, node_id)
    assert opened.environment == {"POOL": "pool", "BASELOAD_WALLET_XMR": "4abc"}
    await ada.patch("/v1/account", {"wallets": {"XMR": "5def"}})
    again = find_wanted_status(FindWantedStatus(node_id=node_id)).idle_workload
    assert again is not None
    assert again.revision == "2"
    facts = {"state": "running", "run_s": 7200.0, "energy_joules": 3.6e6, "energy_s": 7200.0}
    site.set(tables.Node, node_id, idle_workload=facts)
    node = (await ada.patch(f"/v1/nodes/{node_id}", {"mining": False})).json()
    assert node["idle_workload"]["energy_joules"] == 3.6e6
    off = find_wanted_status(FindWantedStatus(node_id=node_id)).idle_workload
    assert off is not None
    assert (off.revision, off.sealed) == ("", "")


@pytest.mark.parametrize("change", [{"machine": {}}, {"services": ["storage"]}])
async def test_rented_machines_and_nodes_with_storage_only_have_no_idle_workload(
    site: Site, ada: Person, change: dict[str, Any]
) -> None:
    node_id = await ada.node(await ada.region())
    await ada.patch("/v1/account", {"idle_workload": WORKLOAD, "wallets": {"XMR": "4abc"}})
    site.set(tables.Node, node_id, **change)
    response = await ada.patch(f"/v1/nodes/{node_id}", {"mining": True})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "mining"
    site.set(tables.Node, node_id, mining=True)
    assert find_wanted_status(FindWantedStatus(node_id=node_id)).idle_workload is None


async def test_wallets_are_bounded(ada: Person) -> None:
    for wallets in ({"xmr": "4abc"}, {"XMR": "4 abc"}, {f"C{n}": "a" for n in range(17)}):
        response = await ada.patch("/v1/account", {"wallets": wallets})
        assert response.status_code == 422, wallets


async def test_a_region_needs_a_provider_that_is_ready(site: Site, ada: Person) -> None:
    provider = await ada.made("/v1/providers", {"kind": "physical"})
    site.set(tables.Provider, provider["id"], status="failed", status_reason="no key")
    response = await ada.post("/v1/regions", {"provider_id": provider["id"], "name": "home"})
    assert response.status_code == 409
    assert response.json()["code"] == "provider-not-ready"
    assert "failed: no key" in response.json()["detail"]


async def test_a_name_that_dns_would_not_take_is_accepted_with_a_warning(ada: Person) -> None:
    provider_id = await ada.provider()
    region = await ada.made("/v1/regions", {"provider_id": provider_id, "name": "Büro 1"})
    assert "Büro 1 is no DNS label" in region["warnings"][0]
    plain = await ada.made("/v1/regions", {"provider_id": provider_id, "name": "home"})
    assert plain["warnings"] == []


async def test_names_of_regions_are_unique_in_an_account_until_archived(
    site: Site, ada: Person, bob: Person
) -> None:
    region_id = await ada.region("home")
    again = {"provider_id": await ada.provider(), "name": "home"}
    assert (await ada.post("/v1/regions", again)).json()["code"] == "conflict"
    await bob.region("home")
    site.set(tables.Region, region_id, status="archived")
    assert (await ada.post("/v1/regions", again)).status_code == 202


async def test_a_region_without_nodes_may_be_left_to_a_worker_of_its_own(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region("home")
    path = f"/v1/regions/{region_id}"
    changed = await ada.patch(path, {"own_worker": True})
    assert (changed.status_code, changed.json()["own_worker"]) == (202, True)
    assert (await ada.patch(path, {"own_worker": True})).status_code == 202
    told = [row.verb for row in site.rows(tables.OutboxRow, resource_id=region_id)]
    assert told.count("change_site") == 1

    node_id = await ada.node(region_id, "n1")
    refused = await ada.patch(path, {"own_worker": False})
    assert refused.json()["code"] == "conflict"
    assert f"has {node_id}" in refused.json()["detail"]
    assert site.rows(tables.Region, id=region_id)[0].own_worker


async def test_apt_packages_of_others_are_the_owners_to_allow_at_any_time(
    site: Site, ada: Person
) -> None:
    path = f"/v1/regions/{await ada.region('home')}"
    assert (await ada.get(path)).json()["allows_apt_packages"] is False
    await ada.node(path.rpartition("/")[2], "n1")
    for allowed in (True, True, False):
        changed = await ada.patch(path, {"allows_apt_packages": allowed})
        assert changed.json()["allows_apt_packages"] is allowed
    assert (await ada.get(path)).json()["own_worker"] is False
    made = await ada.region("open", allows_apt_packages=True)
    assert site.rows(tables.Region, id=made)[0].allows_apt_packages


async def test_unknown_requirements_are_refused_by_name(ada: Person) -> None:
    body = {"provider_id": await ada.provider(), "name": "r", "relaxed_requirements": ["tpmm"]}
    response = await ada.post("/v1/regions", body)
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "relaxed_requirements"
    assert error["value"] == "tpmm"


async def test_unknown_fields_and_wrong_ones_are_told_together(ada: Person) -> None:
    body = {"provider_id": "prv-x", "name": "", "storage_mode": "odd", "colour": "red"}
    response = await ada.post("/v1/regions", body)
    assert response.headers["content-type"] == "application/problem+json"
    assert {error["field"] for error in response.json()["errors"]} == {
        "name", "storage_mode", "colour",
    }  # fmt: skip


async def test_a_region_is_trusted_only_while_jobs_share_an_account_on_a_node(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region("home")
    alone, shared = ({"trusted_only_reason": why} for why in (None, "the login user is not root"))
    await ada.node(region_id, "n1", preparation=alone)
    path = f"/v1/regions/{region_id}"
    assert (await ada.get(path)).json()["trusted_only"] is False

    node_id = await ada.node(region_id, "n2", preparation=shared)
    (region,) = (await ada.get("/v1/regions")).json()["items"]
    assert region["trusted_only"] is True
    assert region["trusted_only_reason"] == "n2: the login user is not root"

    site.set(tables.Node, node_id, status="archived")
    found = (await ada.get(path)).json()
    assert (found["trusted_only"], found["trusted_only_reason"]) == (False, None)


async def test_what_holds_something_is_removed_only_when_forced(site: Site, ada: Person) -> None:
    region_id = await ada.region("home")
    node_id = await ada.node(region_id, "n1")
    (region,) = site.rows(tables.Region, id=region_id)
    refused = await ada.call("DELETE", f"/v1/providers/{region.provider_id}")
    assert refused.status_code == 409
    assert f"home ({region_id})" in refused.json()["detail"]
    refused = await ada.call("DELETE", f"/v1/regions/{region_id}")
    assert f"n1 ({node_id})" in refused.json()["detail"]
    forced = await ada.call("DELETE", f"/v1/regions/{region_id}?force=true")
    assert forced.status_code == 202
    assert site.asked_of(region_id)[-1] == (
        "remove", {"force": True, "requested_by": ada.user_id, "reschedules": False},
    )  # fmt: skip


async def test_a_node_with_jobs_is_removed_only_when_forced(site: Site, ada: Person) -> None:
    node_id, job_id = await ada.node(await ada.region()), await ada.job()
    _hold(site, node_id, job_id, gpu_indices=[1])
    refused = await ada.call("DELETE", f"/v1/nodes/{node_id}")
    assert refused.status_code == 409
    assert job_id in refused.json()["detail"]
    assert (await ada.call("DELETE", f"/v1/nodes/{node_id}?force=true")).status_code == 202


async def test_a_node_shows_its_hardware_and_which_job_holds_which_gpu(
    site: Site, ada: Person
) -> None:
    gpus = [{"index": i, "name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{i}"} for i in range(2)]
    hardware = {"cpu_count": 8, "memory_bytes": 2**34, "gpus": gpus}
    requirement = {"name": "tpm", "required": "2.0", "found": "none", "passed": True}
    node_id = await ada.node(
        await ada.region(), hardware=hardware, requirements=[requirement], gpu_count=2
    )
    job_id = await ada.job()
    _hold(site, node_id, job_id, gpu_indices=[1])
    node = (await ada.get(f"/v1/nodes/{node_id}")).json()
    assert [(gpu["uuid"], gpu["job_id"]) for gpu in node["gpus"]] == [
        ("GPU-0", None),
        ("GPU-1", job_id),
    ]
    assert node["job_ids"] == [job_id]
    assert node["hardware"]["cpu_count"] == 8
    assert node["requirements"][0]["found"] == "none"


async def test_a_node_shows_what_a_run_that_nobody_has_seen_end_still_holds(
    site: Site, ada: Person
) -> None:
    gpus = [{"index": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-0"}]
    hardware = {"cpu_count": 8, "memory_bytes": 2**34, "gpus": gpus}
    node_id, job_id = await ada.node(await ada.region(), hardware=hardware), await ada.job()
    _hold(site, node_id, job_id, gpu_indices=[0], state="leaving")
    node = (await ada.get(f"/v1/nodes/{node_id}")).json()
    (left,) = node["leaving_allocations"]
    assert (left["job_id"], left["attempt"], left["gpu_indices"]) == (job_id, 1, [0])
    assert (node["job_ids"], node["gpus"][0]["job_id"]) == ([], job_id)
    assert (await ada.post(f"/v1/nodes/{node_id}/reboot")).status_code == 202
    refused = await ada.call("DELETE", f"/v1/nodes/{node_id}")
    assert refused.status_code == 409
    assert f"{job_id}-0-1" in refused.json()["detail"]
    assert (await ada.call("DELETE", f"/v1/nodes/{node_id}?force=true")).status_code == 202


async def test_what_a_person_wants_of_a_node_is_in_its_row_and_its_lifecycle_is_woken(
    site: Site, ada: Person
) -> None:
    node_id = await ada.node(await ada.region())
    for revision, path, status in ((1, "activate", "active"), (2, "maintenance", "maintenance")):
        assert (await ada.post(f"/v1/nodes/{node_id}/{path}")).status_code == 202
        wanted = find_wanted_status(FindWantedStatus(node_id=node_id))
        assert (wanted.status, wanted.revision) == (status, revision)
    # The first wake was not delivered when the second came, so there is one.
    assert site.asked_of(node_id).count(("wake", None)) == 1
    site.set(tables.Node, node_id, seen_revision=2)
    assert find_wanted_status(FindWantedStatus(node_id=node_id)).status is None


async def test_a_node_with_jobs_is_restarted_only_when_forced(site: Site, ada: Person) -> None:
    node_id, job_id = await ada.node(await ada.region()), await ada.job()
    _hold(site, node_id, job_id, gpu_indices=[])
    refused = await ada.post(f"/v1/nodes/{node_id}/reboot")
    assert refused.status_code == 409
    assert job_id in refused.json()["detail"]
    assert "reboot" not in [verb for verb, _ in site.asked_of(node_id)]
    assert (await ada.post(f"/v1/nodes/{node_id}/reboot?force=true")).status_code == 202
    assert site.asked_of(node_id)[-1] == ("reboot", {"force": True})


async def test_a_node_that_is_not_connected_takes_no_orders(site: Site, ada: Person) -> None:
    node_id = await ada.node(await ada.region())
    site.set(tables.Node, node_id, status="inspecting")
    response = await ada.post(f"/v1/nodes/{node_id}/activate")
    assert response.status_code == 409
    assert "is inspecting" in response.json()["detail"]


async def test_an_account_has_one_node_of_a_minion_id(ada: Person) -> None:
    _, minion_id = host_key()
    mine = {"region_id": await ada.region(), "name": "n1", "minion_id": minion_id}
    node = await ada.made("/v1/nodes", mine)
    refused = await ada.post("/v1/nodes", mine | {"name": "n2"})
    assert refused.status_code == 409
    assert node["id"] in refused.json()["detail"]


async def test_a_central_region_has_one_storage_node_and_it_comes_first(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region("home", storage_mode="central")

    async def add(name: str, service: str) -> tuple[int, dict[str, str]]:
        body = {"region_id": region_id, "name": name, "minion_id": host_key()[1]}
        response = await ada.post("/v1/nodes", body | {"services": [service]})
        return response.status_code, response.json()

    status, problem = await add("worker", "compute")
    assert (status, problem["code"]) == (409, "conflict")
    assert "needs its storage node first, found none" in problem["detail"]

    status, storage = await add("store", "storage")
    assert status == 202
    _, problem = await add("worker", "compute")
    assert "store, which is new" in problem["detail"]
    status, problem = await add("second", "storage")
    assert (status, storage["id"] in problem["detail"]) == (409, True)

    site.set(tables.Node, storage["id"], status="active")
    assert (await add("worker", "compute"))[0] == 202
    site.set(tables.Node, storage["id"], status="archived")
    assert (await add("third", "storage"))[0] == 202


async def test_what_a_physical_place_does_not_have_is_said(ada: Person, bob: Person) -> None:
    region_id = await ada.region()
    node_id = await ada.node(region_id)
    found = await ada.get(f"/v1/regions/{region_id}/quotas")
    assert (found.status_code, found.json()) == (200, {"items": [], "next": None})
    assert (await bob.get(f"/v1/regions/{region_id}/quotas")).status_code == 404

    refused = await ada.post(f"/v1/nodes/{node_id}/replace")
    assert refused.status_code == 409
    assert "remove it, then add another" in refused.json()["detail"]
    assert (await bob.post(f"/v1/nodes/{node_id}/replace")).status_code == 404


async def test_announcements_are_limited_in_rate(site: Site) -> None:
    answers: list[httpx.Response] = []
    async with site.client() as anyone:
        while len(answers) < 600:  # some are allowed again meanwhile
            answers.append(await anyone.post("/v1/announcements", json={}))
            if answers[-1].status_code == 429:
                break
    assert {answer.status_code for answer in answers[:60]} == {422}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) >= 1


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "", "a;b"])
async def test_an_address_is_an_address(ada: Person, address: str) -> None:
    _, minion_id = host_key()
    body = {"region_id": "reg-x", "name": "n", "minion_id": minion_id, "address": address}
    response = await ada.post("/v1/nodes", body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "address"


async def test_archived_resources_are_listed_only_when_asked_for(site: Site, ada: Person) -> None:
    provider_id = await ada.provider()
    site.set(tables.Provider, provider_id, status="archived")
    assert (await ada.get("/v1/providers")).json()["items"] == []
    asked = (await ada.get("/v1/providers?status=archived")).json()["items"]
    assert [item["id"] for item in asked] == [provider_id]
    assert (await ada.get(f"/v1/providers/{provider_id}")).status_code == 200


def _hold(
    site: Site, node_id: str, job_id: str, gpu_indices: list[int], state: str = "running"
) -> None:
    (job,) = site.rows(tables.Job, id=job_id)
    site.write(
        tables.Allocation(
            id=f"alc-{job_id}",
            job_id=job_id,
            worker=0,
            attempt=1,
            node_id=node_id,
            cpu_count=1,
            memory_bytes=0,
            gpu_indices=gpu_indices,
            state=state,
            created_at=job.created_at,
        )
    )


async def test_a_region_is_opened_to_guests_and_closed_while_it_has_no_nodes(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region("home")
    path = f"/v1/regions/{region_id}"
    for public in (True, True, False, True):
        assert (await ada.patch(path, {"public": public})).json()["public"] is public
    await ada.node(region_id, "n1")
    refused = await ada.patch(path, {"public": False})
    assert refused.json()["code"] == "conflict"
    assert "public changes only while it has no nodes" in refused.json()["detail"]
    assert site.rows(tables.Region, id=region_id)[0].public


async def test_the_policy_for_guests_changes_as_a_whole_at_any_time(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region("home", public=True)
    await ada.node(region_id, "n1")
    path = f"/v1/regions/{region_id}"
    assert (await ada.get(path)).json()["guest_policy"] is None
    changed = await ada.patch(path, {"guest_policy": {"accounts": ["acc-1"], "most_gpus": 2}})
    assert changed.json()["guest_policy"]["accounts"] == ["acc-1"]
    changed = await ada.patch(path, {"guest_policy": {"from_hour": 22, "until_hour": 6}})
    policy = changed.json()["guest_policy"]
    assert (policy["accounts"], policy["most_gpus"]) == ([], None)
    assert (policy["from_hour"], policy["until_hour"]) == (22, 6)
    assert (await ada.get(path)).json()["guest_policy"] == policy
    assert site.rows(tables.Region, id=region_id)[0].guest_policy == policy


@pytest.mark.parametrize(
    "policy",
    [
        {"from_hour": 22},
        {"from_hour": 6, "until_hour": 6},
        {"from_hour": 24, "until_hour": 6},
        {"most_gpus": 0},
        {"preemption_notice_s": 59},
        {"accounts": ["acc"] * 101},
        {"whom": "all"},
    ],
)
async def test_a_policy_that_cannot_be_is_refused(ada: Person, policy: dict[str, object]) -> None:
    path = f"/v1/regions/{await ada.region('home', public=True)}"
    assert (await ada.patch(path, {"guest_policy": policy})).status_code == 422
