"""The commands for machines that cost money: what is shown, what is ended, what is left."""

from datetime import timedelta
from typing import Any

from activities.db import tables
from tests.api.test_leases import BEGAN, lease_row
from tests.client.conftest import Desk

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
    assert desk.site.asked_of("lea-1")[-1][0] == "give_back"


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
