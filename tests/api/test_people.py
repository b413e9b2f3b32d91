"""Devices, deployments and configurations over HTTP name the people who have asked for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, event

from activities.db import tables
from activities.db.ids import new_id
from tests.api.device_rows import configuration, device, edge_region, set_to
from tests.api.http_server import Person, Site
from tests.api.test_deployments import credit

EVE = "eve@example.test"


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def colleague(site: Site, person: Person, email: str = EVE) -> str:
    """A user of the person's account; their id."""
    user_id = new_id("usr")
    row = tables.User(
        id=user_id, account_id=person.account_id, email=email, role="member",
        created_at=datetime.now(UTC),
    )  # fmt: skip
    site.write(row)
    return user_id


async def test_who_deployed_is_named_and_only_for_who_may_list_users(
    site: Site, ada: Person, bob: Person
) -> None:
    credit(site, ada, 10)
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    eve = colleague(site, ada)
    of_eve = replace(ada, user_id=eve).with_key()
    configuration_id = await configuration(of_eve, region_id)
    await set_to(ada, configuration_id, device_id)
    made = await ada.made("/v1/device-deployments", {"configuration_id": configuration_id})
    assert made["requested_by_name"] == "ada@example.test"
    deployment = f"/v1/device-deployments/{made['id']}"
    site.set(
        tables.DeviceDeployment, made["id"], requested_by=eve, status_reason=f"rolled back by {eve}"
    )
    now = datetime.now(UTC)
    site.set(
        tables.Device, device_id, deployed_by=eve, deployed_at=now, assignment_number=1,
        assignment_by=bob.user_id, assignment_at=now,
    )  # fmt: skip
    for reader, named in ((ada, EVE), (ada.with_key(["device-deployments:read"]), "a member")):
        shown = (await reader.get(deployment)).json()
        assert (shown["requested_by"], shown["requested_by_name"]) == (eve, named)
        assert shown["status_reason"] == f"rolled back by {named}"
    shown = (await ada.get(f"/v1/devices/{device_id}")).json()
    assert (shown["deployed_by"], shown["deployed_by_name"]) == (eve, EVE)
    assert shown["requested"]["requested_by_name"] == "a member"
    path = f"/v1/device-configurations/{configuration_id}"
    shown = (await ada.get(path)).json()
    assert {shown["latest"]["created_by_name"], shown["revisions"][0]["created_by_name"]} == {EVE}
    assert (await ada.get(f"{path}/revisions/1")).json()["created_by_name"] == EVE


async def test_the_people_of_a_list_are_found_by_one_statement(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    found = [await device(site, ada, region_id, f"shop-{number}") for number in range(4)]
    for device_id in found:
        site.set(tables.Device, device_id, deployed_by=colleague(site, ada, f"{device_id}@x.test"))
    with statements() as executed:
        items = (await ada.get("/v1/devices")).json()["items"]
    assert {each["deployed_by_name"] for each in items} == {f"{each}@x.test" for each in found}
    with_names = [each for each in executed if "claimed_email" in each and " IN (" in each]
    assert len(with_names) == 1
