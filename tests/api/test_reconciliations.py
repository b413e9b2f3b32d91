"""Reconciliation when an administrator asks: what is found, what is ended, and what is left."""

from typing import Any

from activities.db import tables
from tests.activities.providers.fake_driver import RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.api.http_server import Person, Site
from tests.api.test_provider_machines import ZONE, asked, cloud, driver, runs

__all__ = ["driver"]


async def reconciled(person: Person, **body: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await person.made("/v1/reconcile", body))["items"]
    return items


def orphan(name: str) -> dict[str, str]:
    return {"name": name, "zone": ZONE}


async def test_what_providers_list_is_compared_with_the_leases(
    site: Site, admin: Person, driver: RentedDriver
) -> None:
    provider_id = await cloud(site, admin)
    runs(driver, "baseload-lea-2", "baseload-stray")
    (found,) = await reconciled(admin)
    assert (found["provider_id"], found["machine_count"]) == (provider_id, 2)
    assert [each["name"] for each in found["ending"]] == ["baseload-lea-2"]
    assert [each["name"] for each in found["unknown"]] == ["baseload-stray"]
    assert (found["missing"], found["failure"]) == (["lea-1"], None)
    assert asked(site, provider_id) == [
        (
            "terminate_orphan",
            {"machine": orphan("baseload-lea-2"), "requested_by": admin.user_id},
        ),
        ("orphaned_machines", {"machines": [orphan("baseload-stray")]}),
    ]
    assert [verb for verb, _ in asked(site, "lea-1")] == ["refresh"]


async def test_what_no_lease_names_is_ended_when_that_is_asked_for(
    site: Site, admin: Person, driver: RentedDriver
) -> None:
    provider_id = await cloud(site, admin)
    runs(driver, "baseload-lea-1", "baseload-stray")
    (found,) = await reconciled(admin, provider_id=provider_id, end=True)
    assert [each["name"] for each in found["unknown"]] == ["baseload-stray"]
    assert asked(site, provider_id) == [
        (
            "terminate_orphan",
            {"machine": orphan("baseload-stray"), "requested_by": admin.user_id},
        )
    ]
    assert asked(site, "lea-1") == []


async def test_machines_of_another_provider_are_left_alone(site: Site, admin: Person) -> None:
    """As where two installations share one account of a marketplace: each sees its own mark."""
    mine, other = RentedDriver(), RentedDriver()
    provider_id = await cloud(site, admin)
    runs(mine, "baseload-lea-1")
    runs(other, "baseload-of-the-other-installation")
    with kind_with(driver=lambda asked: mine if asked == provider_id else other):
        (found,) = await reconciled(admin, end=True)
    assert (found["machine_count"], found["unknown"]) == (1, [])
    assert asked(site, provider_id) == []


async def test_a_provider_that_does_not_answer_is_not_taken_for_empty(
    site: Site, admin: Person, driver: RentedDriver
) -> None:
    provider_id = await cloud(site, admin)
    driver.is_away = True
    (found,) = await reconciled(admin, end=True)
    assert found["failure"]
    assert (found["missing"], asked(site, provider_id)) == ([], [])
    assert asked(site, "lea-1") == []


async def test_it_is_for_administrators_and_about_the_account_alone(
    site: Site, ada: Person, admin: Person, driver: RentedDriver
) -> None:
    hers = await cloud(site, ada)
    runs(driver, "baseload-stray")
    assert (await ada.post("/v1/reconcile", {})).status_code == 403
    assert (await admin.post("/v1/reconcile", {"provider_id": hers})).status_code == 404
    assert await reconciled(admin) == []
    act_for = {"X-Baseload-Account": ada.account_id}
    found = await admin.call("POST", "/v1/reconcile", headers=act_for, json={})
    assert [each["provider_id"] for each in found.json()["items"]] == [hers]
    site.set(tables.Provider, hers, status="archived")
    refused = await admin.call("POST", "/v1/reconcile", headers=act_for, json={"provider_id": hers})
    assert refused.status_code == 409
