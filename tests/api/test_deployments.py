"""Deployments over HTTP: which devices they have, what refuses them, what stops them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.billing.ledger import FUNDING, Entry, add_credits, post
from activities.billing.payers import credits_name
from activities.db import tables
from activities.devices.rollouts import advance_rollout
from tests.api.device_rows import configuration, device, edge_region, set_to
from tests.api.http_server import Person, Site
from workflows.contracts.billing import MICROCREDITS, TransactionKind
from workflows.contracts.deployments import RolloutPolicy
from workflows.effects.deployments import AdvanceRollout

PATH = "/v1/device-deployments"
SHOPS = ("shop-1", "shop-2", "shop-3")


@pytest.fixture
async def shops(site: Site, ada: Person) -> tuple[str, list[str]]:
    """A configuration and three devices that are set to it; the account has credits."""
    credit(site, ada, 10)
    region_id = await edge_region(site, ada)
    configuration_id = await configuration(ada, region_id)
    device_ids = [await device(site, ada, region_id, name) for name in SHOPS]
    await set_to(ada, configuration_id, *device_ids)
    return configuration_id, device_ids


def credit(site: Site, person: Person, count: int) -> None:
    """Add credits, or take some as a charge does."""
    with site.database.write() as session:
        account = session.get_one(tables.Account, person.account_id)
        amount, now = count * MICROCREDITS, datetime.now(UTC)
        if count > 0:
            add_credits(session, account, amount, account.id, now)
            return
        legs = {credits_name(account.id): amount, FUNDING: -amount}
        entry = Entry(
            f"charge/{account.id}", TransactionKind.USAGE_FEE, account.id, legs, now, "used up"
        )
        post(session, entry)


async def test_a_deployment_has_all_devices_of_its_configuration(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    configuration_id, device_ids = shops
    made = await ada.made(PATH, {"configuration_id": configuration_id, "max_unavailable": 2})
    assert (made["name"], made["status"], made["revision"]) == ("detector 1", "new", 1)
    assert (made["counts"]["waiting"], made["counts"]["total"]) == (3, 3)
    assert made["policy"]["max_unavailable"] == 2
    assert made["workflow_id"] == f"deployment/{made['id']}"
    assert site.asked_of(made["id"]) == [("start", None)]
    assert (await ada.get(f"{PATH}/{made['id']}")).json() == made
    listed = (await ada.get(f"{PATH}?configuration_id={configuration_id}&status=new")).json()
    assert [each["id"] for each in listed["items"]] == [made["id"]]
    first = (await ada.get(f"{PATH}/{made['id']}/devices?limit=2")).json()
    rest = (await ada.get(f"{PATH}/{made['id']}/devices?after={first['next']}")).json()
    found = [*first["items"], *rest["items"]]
    assert [each["device_id"] for each in found] == sorted(device_ids, reverse=True)
    assert {(each["state"], each["status"]) for each in found} == {("waiting", "active")}
    events = (await ada.get(f"{PATH}/{made['id']}/events")).json()["items"]
    assert [event["type"] for event in events] == ["deployment.requested"]


async def test_named_devices_alone_are_deployed_to(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    configuration_id, device_ids = shops
    await ada.patch(f"/v1/device-configurations/{configuration_id}", {"command": "v2"})
    made = await ada.made(PATH, {"device_ids": device_ids[:1] * 2, "revision": 1})
    assert (made["configuration_id"], made["revision"]) == (configuration_id, 1)
    rows = site.rows(tables.DeploymentTarget, deployment_id=made["id"])
    assert [row.device_id for row in rows] == device_ids[:1]
    latest = await ada.made(PATH, {"device_ids": device_ids[:1]})
    assert latest["revision"] == 2


@pytest.mark.parametrize("kind", ["nothing", "none set", "two", "removing", "other's"])
async def test_devices_that_do_not_have_the_configuration_are_refused(
    site: Site, ada: Person, bob: Person, shops: tuple[str, list[str]], kind: str
) -> None:
    configuration_id, (first, second, _) = shops
    asked: dict[str, Any] = {"device_ids": [first, second]}
    if kind == "nothing":
        asked = {}
    elif kind == "none set":
        site.set(tables.Device, first, configuration_id=None)
        asked |= {"configuration_id": configuration_id}
    elif kind == "two":
        site.set(tables.Device, first, configuration_id=None)
    elif kind == "removing":
        site.set(tables.Device, first, status="removing")
    else:
        asked = {"device_ids": [await device(site, bob, await edge_region(site, bob))]}
    refused = await ada.post(PATH, asked)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")
    field = refused.json()["errors"][0]["field"]
    assert field.split(".")[0] == ("configuration_id" if kind == "nothing" else "device_ids")


async def test_a_configuration_without_devices_is_not_deployed(site: Site, ada: Person) -> None:
    configuration_id = await configuration(ada, await edge_region(site, ada))
    refused = await ada.post(PATH, {"configuration_id": configuration_id})
    assert refused.status_code == 409
    assert "no device is set to it" in refused.json()["detail"]


async def test_devices_return_only_after_so_many_failures(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    body = {"configuration_id": shops[0], "rolls_back": True}
    refused = await ada.post(PATH, body)
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["field"], error["value"]) == ("rolls_back", True)
    assert "needs max_failures" in error["rule"]
    made = await ada.made(PATH, body | {"max_failures": 1})
    assert made["policy"]["rolls_back"] is True


async def test_a_revision_that_is_not_there_is_not_deployed(
    ada: Person, shops: tuple[str, list[str]]
) -> None:
    refused = await ada.post(PATH, {"configuration_id": shops[0], "revision": 2})
    assert refused.status_code == 404


async def test_no_credits_no_further_deployment(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    credit(site, ada, -10)
    refused = await ada.post(PATH, {"configuration_id": shops[0]})
    assert (refused.status_code, refused.json()["code"]) == (402, "insufficient-credits")
    assert site.rows(tables.DeviceDeployment) == []


async def test_a_model_that_is_not_ready_is_not_deployed(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    model = await ada.made("/v1/models", {"name": "yolo", "source": {"type": "upload"}})
    site.set(tables.Model, model["id"], status="transferring")
    change = {"model": {"id": model["id"]}}
    changed = await ada.patch(f"/v1/device-configurations/{shops[0]}", change)
    assert changed.status_code == 200
    refused = await ada.post(PATH, {"configuration_id": shops[0]})
    assert refused.status_code == 409
    assert f"{model['id']}: is transferring" in refused.json()["detail"]
    site.set(tables.Model, model["id"], status="ready")
    assert (await ada.post(PATH, {"configuration_id": shops[0]})).status_code == 202


@pytest.mark.parametrize(
    ("order", "allowed"),
    [
        ("pause", {"new", "rolling_out"}),
        ("resume", {"paused"}),
        ("stop", {"new", "rolling_out", "paused"}),
        ("roll-back", {"new", "rolling_out", "paused"}),
    ],
)
async def test_an_order_is_for_a_deployment_that_can_follow_it(
    site: Site, ada: Person, shops: tuple[str, list[str]], order: str, allowed: set[str]
) -> None:
    made = await ada.made(PATH, {"configuration_id": shops[0]})
    statuses = ("new", "rolling_out", "paused", "rolling_back", "finished", "failed")
    taken = set()
    for status in statuses:
        site.set(tables.DeviceDeployment, made["id"], status=status)
        answer = await ada.post(f"{PATH}/{made['id']}/{order}")
        if answer.status_code == 202:
            taken.add(status)
        else:
            assert answer.status_code == 409
            assert f"is {status}" in answer.json()["detail"]
    assert taken == allowed
    asked = {"action": order.replace("-", "_"), "requested_by": ada.user_id}
    assert site.asked_of(made["id"])[1:] == [("order", asked)] * len(allowed)


async def test_a_configuration_that_is_deployed_now_stays(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    configuration_id, device_ids = shops
    made = await ada.made(PATH, {"configuration_id": configuration_id})
    for each in device_ids:
        site.set(tables.Device, each, configuration_id=None)
    refused = await ada.call("DELETE", f"/v1/device-configurations/{configuration_id}")
    assert refused.status_code == 409
    assert made["id"] in refused.json()["detail"]


async def test_a_stopped_device_wakes_the_deployment_that_waits_for_it(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    configuration_id, (first, *_) = shops
    made = await ada.made(PATH, {"configuration_id": configuration_id})
    site.set(tables.Device, first, assignment_number=1, assignment_deployment_id=made["id"])
    await ada.post(f"/v1/devices/{first}/stop")
    assert site.asked_of(made["id"]) == [("start", None), ("wake", None)]


def asked_by(site: Site) -> dict[str, str | None]:
    """By device, the deployment whose assignment is the newest."""
    return {row.name: row.assignment_deployment_id for row in site.rows(tables.Device)}


def advance(deployment: dict[str, Any]) -> None:
    """Let a deployment take a step, as its workflow does."""
    policy = RolloutPolicy.model_validate(deployment["policy"])
    at = datetime.now(UTC)
    advance_rollout(AdvanceRollout(deployment_id=deployment["id"], policy=policy, at=at))


async def test_an_older_deployment_asks_no_device_of_a_newer_one(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    older = await ada.made(PATH, {"configuration_id": shops[0], "max_unavailable": 1})
    advance(older)
    newer = await ada.made(PATH, {"configuration_id": shops[0], "revision": 1})
    assert ("wake", None) in site.asked_of(older["id"])
    advance(newer)
    advance(older)
    assert set(asked_by(site).values()) == {newer["id"]}
    targets = site.rows(tables.DeploymentTarget, deployment_id=older["id"])
    assert {row.state for row in targets} == {"superseded"}


async def test_a_stopped_device_is_asked_by_no_older_deployment(
    site: Site, ada: Person, shops: tuple[str, list[str]]
) -> None:
    configuration_id, device_ids = shops
    older = await ada.made(PATH, {"configuration_id": configuration_id})
    assert (await ada.post(f"/v1/devices/{device_ids[1]}/stop")).status_code == 202
    advance(older)
    assert asked_by(site) == {"shop-1": older["id"], "shop-2": None, "shop-3": older["id"]}


async def test_another_account_takes_no_device_out_of_a_deployment(
    site: Site, ada: Person, bob: Person, shops: tuple[str, list[str]]
) -> None:
    await ada.made(PATH, {"configuration_id": shops[0]})
    assert (await bob.post(f"/v1/devices/{shops[1][0]}/stop")).status_code == 404
    assert {row.state for row in site.rows(tables.DeploymentTarget)} == {"waiting"}
