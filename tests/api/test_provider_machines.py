"""Machines as a provider lists them: shown against the leases, ended by a person."""

from collections.abc import Iterator
from typing import Any

import pytest

from activities.db import tables
from activities.providers.base import RequestRefused
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.api.http_server import Person, Site
from tests.api.test_leases import OFFER, lease_row
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState

ZONE = OFFER.zone


@pytest.fixture
def driver() -> Iterator[RentedDriver]:
    found = RentedDriver()
    with kind_with(driver=lambda _: found):
        yield found


def runs(driver: RentedDriver, *names: str) -> None:
    for name in names:
        seen = MachineObservation(state=MachineState.RUNNING, zone=ZONE, provider_machine_id="4711")
        driver.machines[Owned(name, ZONE)] = seen


async def cloud(site: Site, owner: Person) -> str:
    """A provider with a lease that is ready, and one that has ended."""
    (region,) = site.rows(tables.Region, id=await owner.region())
    site.set(tables.Provider, region.provider_id, status="ready", kind="gcp")
    site.write(lease_row(region, "lea-1"))
    site.write(lease_row(region, "lea-2", status="released"))
    return str(region.provider_id)


def asked(site: Site, resource_id: str) -> list[tuple[str, Any]]:
    rows = site.rows(tables.OutboxRow, resource_id=resource_id)
    return [(row.verb, row.argument) for row in rows if row.verb != "start"]


async def test_a_provider_s_own_list_is_shown_with_what_nobody_holds(
    site: Site, ada: Person, bob: Person, driver: RentedDriver
) -> None:
    path = f"/v1/providers/{await cloud(site, ada)}/machines"
    runs(driver, "baseload-lea-1", "baseload-lea-2", "baseload-stray")
    listed = (await ada.get(path)).json()["items"]
    assert [(each["name"], each["lease_id"], each["held"]) for each in listed] == [
        ("baseload-lea-1", "lea-1", True),
        ("baseload-lea-2", "lea-2", False),
        ("baseload-stray", None, False),
    ]
    assert (await bob.get(path)).status_code == 404


async def test_a_provider_that_does_not_answer_is_said_to_be_silent_and_not_empty(
    site: Site, ada: Person, driver: RentedDriver
) -> None:
    path = f"/v1/providers/{await cloud(site, ada)}/machines"
    driver.is_away = True
    silent = await ada.get(path)
    assert (silent.status_code, silent.json()["code"]) == (503, "unavailable")

    def refuse(_: str) -> RentedDriver:
        raise RequestRefused("the key does not work")

    with kind_with(driver=refuse):
        refused = await ada.get(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "provider-not-ready")


async def test_a_machine_is_ended_by_its_lease_or_else_by_its_provider(
    site: Site, ada: Person, bob: Person, driver: RentedDriver
) -> None:
    provider_id = await cloud(site, ada)
    for name, lease_id in (("lea-1", "lea-1"), ("lea-2", None), ("stray", None)):
        path = f"/v1/providers/{provider_id}/machines/baseload-{name}?zone={ZONE}"
        assert (await bob.call("DELETE", path)).status_code == 404
        answer = await ada.call("DELETE", path)
        assert (answer.status_code, answer.json()["lease_id"]) == (202, lease_id)
    assert [verb for verb, _ in asked(site, "lea-1")] == ["release"]
    assert asked(site, provider_id) == [
        (
            "terminate_orphan",
            {"machine": {"name": name, "zone": ZONE}, "requested_by": ada.user_id},
        )
        for name in ("baseload-lea-2", "baseload-stray")
    ]
    site.set(tables.Lease, "lea-1", provider_kind="vastai")
    elsewhere = f"/v1/providers/{provider_id}/machines/baseload-lea-1?zone=elsewhere"
    assert (await ada.call("DELETE", elsewhere)).json()["lease_id"] == "lea-1"
    site.set(tables.Provider, provider_id, status="archived")
    assert (await ada.call("DELETE", path)).status_code == 409
    assert (await ada.get(f"/v1/providers/{provider_id}/machines")).status_code == 409
