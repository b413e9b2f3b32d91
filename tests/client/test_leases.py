"""The commands for machines that cost money: what is shown, what is ended, what is left."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from baseload.commands.session import Session
from baseload.commands.termination import Ending

from activities.db import tables
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.api.test_leases import BEGAN, lease_row
from tests.client.conftest import Desk
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState

ENDED = {"status": "released", "ended_at": BEGAN + timedelta(minutes=30)}


def lease(desk: Desk, lease_id: str, **values: Any) -> None:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status="ready")
    made = desk.json("region", "create", lease_id, "--provider", provider["id"])
    (region,) = desk.site.rows(tables.Region, id=made["id"])
    desk.site.write(lease_row(region, lease_id, **values))


def test_leases_shows_what_still_costs_and_with_ended_what_has_cost(desk: Desk) -> None:
    lease(desk, "lea-1", **ENDED)
    lease(desk, "lea-2")
    assert [each["id"] for each in desk.json("leases")["items"]] == ["lea-2"]
    said = desk.baseload("leases", "--ended").out
    assert "about 3.6" in said
    assert "1.8" in said
    assert "us-central1-a" in said


def test_kill_asks_for_the_end_and_fails_while_a_machine_is_there(desk: Desk) -> None:
    lease(desk, "lea-1")
    ended = desk.baseload("kill", "lea-1", "--yes", "--timeout", "0")
    assert ended.code == 1
    assert "lea-1" in ended.err
    assert desk.site.asked_of("lea-1")[-1][0] == "release"


def test_kill_all_is_done_only_when_nothing_of_the_provider_is_left(desk: Desk) -> None:
    lease(desk, "lea-1", **ENDED)
    assert "0 machines are gone" in desk.baseload("kill", "--all", "--provider", "gcp", "-y").out
    lease(desk, "lea-2", status="releasing")
    ended = desk.baseload("kill", "--all", "--provider", "gcp", "-y", "--timeout", "0")
    assert ended.code == 1
    assert "lea-2" in ended.err
    assert desk.baseload("kill", "--all", "--provider", "vastai", "-y").code == 0


def test_kill_needs_to_be_told_what(desk: Desk) -> None:
    assert desk.baseload("kill", "--yes").code == 2
    assert desk.baseload("kill", "lea-1", "--all", "--yes").code == 2
    assert desk.baseload("kill", "lea-1", "--provider", "gcp", "--yes").code == 2


def test_kill_all_finds_a_provider_by_its_name(desk: Desk) -> None:
    lease(desk, "lea-1")
    (row,) = desk.site.rows(tables.Lease, id="lea-1")
    desk.site.set(tables.Provider, row.provider_id, name="burst")
    ended = desk.baseload("kill", "--all", "--provider", "burst", "-y", "--timeout", "0")
    assert (ended.code, "lea-1" in ended.err) == (1, True)
    assert desk.site.asked_of("lea-1")[-1][0] == "release"


def test_kill_all_says_of_an_unknown_provider_that_it_has_ended_nothing(desk: Desk) -> None:
    lease(desk, "lea-1")
    for unknown in ("runpodd", "prv-1"):
        ended = desk.baseload("kill", "--all", "--provider", unknown, "-y", "--timeout", "0")
        assert (ended.code, ended.out) == (2, ""), unknown
        assert f"no provider has the kind, the id or the name {unknown!r}" in ended.err


@pytest.fixture
def driver() -> Iterator[RentedDriver]:
    found = RentedDriver()
    with kind_with(driver=lambda _: found):
        yield found


def cloud(desk: Desk) -> str:
    """A provider of machines that cost money; its id."""
    provider = desk.json("provider", "enable", "physical", "--name", "burst")
    desk.site.set(tables.Provider, provider["id"], status="ready", kind="gcp")
    return str(provider["id"])


def test_kill_all_ends_what_no_lease_names_and_says_that_the_provider_lists_nothing(
    desk: Desk, driver: RentedDriver
) -> None:
    provider_id = cloud(desk)
    driver.machines[Owned("baseload-stray", "zone-a")] = MachineObservation(
        state=MachineState.RUNNING, zone="zone-a"
    )
    left = desk.baseload("kill", "--all", "--provider", "gcp", "-y", "--timeout", "0")
    assert left.code == 1
    assert "baseload-stray in zone-a is running" in left.err
    assert [verb for verb, _ in desk.site.asked_of(provider_id)][-1] == "terminate_orphan"
    assert "nobody" in desk.baseload("leases", "--listed").out
    driver.machines.clear()
    done = desk.baseload("kill", "--all", "--provider", "gcp", "-y")
    assert (done.code, f"burst ({provider_id}) lists no machine of ours" in done.out) == (0, True)


class Relentless:
    """An account whose one job leases another machine whenever it has lost one."""

    def __init__(self) -> None:
        self.leased = 1

    def items(self, path: str, **_: Any) -> list[dict[str, Any]]:
        shown = {"id": f"lea-{self.leased}", "name": "vm", "status": "ready"}
        return [shown] if path == "/v1/leases" else []

    def delete(self, path: str, **_: Any) -> None:
        assert path == f"/v1/leases/lea-{self.leased}"
        self.leased += 1


def test_what_is_leased_anew_is_ended_too_and_people_are_told_that_it_comes_again() -> None:
    ending = Ending(cast("Session", Relentless()), None)
    for number in range(1, 4):
        (left,) = ending.poll()
        assert f"lea-{number}" in left
        assert ending.newcomers == (number > 1)
    assert ending.leases == ["lea-1", "lea-2", "lea-3"]


def test_kill_all_leaves_a_notebook_to_its_user_unless_it_is_named(desk: Desk) -> None:
    lease(desk, "lea-1", provider_kind="colab")
    assert "0 machines are gone" in desk.baseload("kill", "--all", "-y").out
    assert "release" not in [verb for verb, _ in desk.site.asked_of("lea-1")]
    desk.baseload("kill", "--all", "--provider", "colab", "-y", "--timeout", "0")
    assert desk.site.asked_of("lea-1")[-1][0] == "release"


def test_kill_all_fails_when_a_provider_cannot_be_asked(desk: Desk, driver: RentedDriver) -> None:
    cloud(desk)
    driver.is_away = True
    ended = desk.baseload("kill", "--all", "-y", "--timeout", "0")
    assert ended.code == 1
    assert "cannot be asked" in ended.err
    assert desk.baseload("leases", "--listed").code == 1
    assert desk.baseload("kill", "--all", "--provider", "vastai", "-y").code == 0
