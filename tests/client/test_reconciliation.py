"""`baseload reconcile`: what it says of machines and leases, what it ends, and its exit code."""

from collections.abc import Iterator
from typing import Any

import pytest

from activities.db import tables
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.api.test_leases import OFFER, lease_row
from tests.client.conftest import Desk
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState


@pytest.fixture
def driver() -> Iterator[RentedDriver]:
    found = RentedDriver()
    with kind_with(driver=lambda _: found):
        yield found


@pytest.fixture
def provider(desk: Desk) -> str:
    """The id of a cloud with a lease that is ready, and one that has ended."""
    made = desk.json("provider", "enable", "physical", "--name", "burst")
    desk.site.set(tables.Provider, made["id"], status="ready")
    region = desk.json("region", "create", "of-burst", "--provider", made["id"])
    desk.site.set(tables.Provider, made["id"], kind="gcp")
    (row,) = desk.site.rows(tables.Region, id=region["id"])
    desk.site.write(lease_row(row, "lea-1"), lease_row(row, "lea-2", status="released"))
    return str(made["id"])


def runs(driver: RentedDriver, *names: str, zone: str = OFFER.zone) -> None:
    for name in names:
        driver.machines[Owned(f"baseload-{name}", zone)] = MachineObservation(
            state=MachineState.RUNNING, zone=zone, microcredits_per_hour=1_500_000
        )


def asked(desk: Desk, resource_id: str) -> list[tuple[str, Any]]:
    return [each for each in desk.site.asked_of(resource_id) if each[0] != "start"]


def ended(desk: Desk, provider_id: str) -> list[str]:
    """The machines that the provider's workflow was asked to terminate."""
    return [
        argument["machine"]["name"]
        for verb, argument in asked(desk, provider_id)
        if verb == "terminate_orphan"
    ]


def test_it_says_that_all_is_as_the_leases_say(
    desk: Desk, driver: RentedDriver, provider: str
) -> None:
    runs(driver, "lea-1")
    found = desk.baseload("reconcile")
    assert (found.code, found.out) == (
        0, f"burst ({provider})  1 machine, as the leases say\n",
    )  # fmt: skip
    assert ended(desk, provider) == []


def test_it_ends_what_no_lease_holds_and_only_lists_what_none_names(
    desk: Desk, driver: RentedDriver, provider: str
) -> None:
    runs(driver, "lea-2", "orphan")
    found = desk.baseload("reconcile")
    assert found.code == 1
    assert f"burst ({provider})  2 machines" in found.out
    assert f"baseload-lea-2 in {OFFER.zone} (running, 1.50 credits/h): its lease" in found.out
    assert "baseload-orphan" in found.out
    assert "no lease names it; is left as it is" in found.out
    assert "lea-1: its machine is not listed; looks for it now" in found.out
    assert "1 machine without a lease; --end terminates them" in found.err
    assert ended(desk, provider) == ["baseload-lea-2"]
    assert [verb for verb, _ in asked(desk, "lea-1")] == ["refresh"]


def test_with_end_it_ends_what_no_lease_names_too(
    desk: Desk, driver: RentedDriver, provider: str
) -> None:
    runs(driver, "lea-1")
    runs(driver, "orphan", zone="")
    found = desk.baseload("reconcile", "--end", "--yes", "--provider", "burst")
    assert found.code == 0
    assert "  baseload-orphan (running, 1.50 credits/h): no lease names it; is being" in found.out
    assert ended(desk, provider) == ["baseload-orphan"]
    assert asked(desk, "lea-1") == []


def test_it_asks_before_it_ends_and_ends_nothing_without_an_answer(
    desk: Desk, driver: RentedDriver, provider: str
) -> None:
    runs(driver, "orphan")
    refused = desk.baseload("reconcile", "--end")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert ended(desk, provider) == []


def test_a_provider_that_cannot_be_asked_is_named_and_is_no_success(
    desk: Desk, driver: RentedDriver, provider: str
) -> None:
    driver.is_away = True
    found = desk.baseload("reconcile", "--end", "--yes")
    assert found.code == 1
    assert f"burst ({provider})  cannot be asked: no route to the provider" in found.out
    assert f"could not be asked: burst ({provider})" in found.err
    assert ended(desk, provider) == []


def test_as_json_it_gives_the_whole_answer(desk: Desk, driver: RentedDriver, provider: str) -> None:
    runs(driver, "lea-1", "orphan")
    found = desk.json("reconcile", "--end", "--yes")
    assert found["end"] is True
    (item,) = found["items"]
    assert (item["provider_id"], item["machine_count"], item["missing"]) == (provider, 2, [])
    assert [each["name"] for each in item["unknown"]] == ["baseload-orphan"]


def test_an_unknown_provider_is_no_empty_answer(desk: Desk, provider: str) -> None:
    assert desk.baseload("reconcile", "--provider", "nowhere").code != 0
