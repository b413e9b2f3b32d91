"""What a reconciliation says of each machine and each lease."""

import pytest

from workflows.contracts.statuses import LeaseStatus
from workflows.rules.leases.reconciliation import Discrepancies, Leased, compare

READY, RELEASED = LeaseStatus.READY, LeaseStatus.RELEASED
CREATING = LeaseStatus.CREATING
NONE = Discrepancies((), (), ())


def lease(status: LeaseStatus = READY, zone: str | None = "a", unreadable: str = "") -> Leased:
    return Leased("lea-1", zone, status, unreadable)


@pytest.mark.parametrize("status", LeaseStatus)
def test_a_lease_holds_its_machine_in_its_own_zone_until_it_ends(status: LeaseStatus) -> None:
    assert lease(status).holds("a") is not status.is_final
    assert not lease(status).holds("b")
    assert not lease(status, zone=None).holds("a")


@pytest.mark.parametrize("status", [READY, RELEASED])
def test_a_lease_that_cannot_be_read_holds_its_machine_everywhere(status: LeaseStatus) -> None:
    assert lease(status, unreadable="no row of this release").holds("b")


def test_a_machine_that_its_lease_holds_is_left_alone() -> None:
    assert compare([("m", "a")], {"m": lease()}) == NONE
    assert compare([("m", "a")], {"m": lease(CREATING)}) == NONE
    assert compare([("m", "b")], {"m": lease(RELEASED, unreadable="why")}) == NONE


def test_a_machine_of_an_ended_lease_or_in_another_zone_is_released() -> None:
    assert compare([("m", "a")], {"m": lease(RELEASED)}).to_release == (("m", "a"),)
    moved = compare([("m", "b"), ("m", "a")], {"m": lease(CREATING)})
    assert moved == Discrepancies((("m", "b"),), (), ())


def test_a_machine_without_a_lease_is_told_and_not_released() -> None:
    found = compare([("n", "b"), ("n", "a"), ("m", "c")], {})
    assert found == Discrepancies((), (("m", "c"), ("n", "a"), ("n", "b")), ())


def test_only_a_ready_lease_misses_its_machine() -> None:
    held = {
        "z": Leased("lea-9", "a", READY),
        "m": Leased("lea-2", "a", READY),
        "new": Leased("lea-3", "a", CREATING),
        "old": Leased("lea-4", "a", RELEASED),
        "here": Leased("lea-5", "a", READY),
    }
    assert compare([("here", "a")], held).missing == ("lea-2", "lea-9")
    moved = compare([("m", "b")], {"m": Leased("lea-2", "a", READY)})
    assert (moved.missing, moved.to_release) == (("lea-2",), (("m", "b"),))
