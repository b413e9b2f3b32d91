"""The machine of a lease: when it began and ended, when it is lost, and what it has cost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow

from workflows.contracts.leases import LeaseProgress, LeaseRequest
from workflows.contracts.machines import (
    MachineNotification,
    MachineObservation,
    MachineOffer,
    MachineSpec,
)
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.leases.machine import Machine

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OFFER = MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=1000)
REQUEST = LeaseRequest(
    lease_id="lea-1", account_id="acc-1", region_id="reg-1", provider_id="prv-1",
    provider_kind=ProviderKind.GCP, machine_name="baseload-lea-1", holder_id="nod-1",
    offers=(OFFER,), spec=MachineSpec(lifetime_s=3600), deadline=NOW + HOUR,
    uses_internal_addresses=True, own_worker=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "now", lambda: NOW)


@pytest.fixture
def machine() -> Machine:
    """Of an offer that was just tried."""
    made = Machine(REQUEST, None)
    made.try_offer(OFFER)
    return made


def seen(state: MachineState = MachineState.RUNNING, **more: Any) -> MachineObservation:
    return MachineObservation.model_validate(
        {"state": state, "provider_machine_id": "vm-1", "host": "10.0.0.1", **more}
    )


def test_a_machine_is_found_by_its_name_in_the_zone_of_its_offer(machine: Machine) -> None:
    assert machine.name == {
        "lease_id": "lea-1",
        "provider_id": "prv-1",
        "provider_kind": ProviderKind.GCP,
        "machine_name": "baseload-lea-1",
        "zone": "zone-a",
        "uses_internal_addresses": True,
    }
    assert Machine(REQUEST, None).name["zone"] == ""


def test_a_machine_is_reached_as_the_node_that_holds_it(machine: Machine) -> None:
    found = machine.address(seen(port=2222, user="ada", minion_id="SHA256:key"))
    assert found.model_dump(exclude_defaults=True) == {
        "node_id": "nod-1", "region_id": "reg-1", "host": "10.0.0.1", "port": 2222,
        "user": "ada", "minion_id": "SHA256:key", "leased": True, "own_worker": True,
    }  # fmt: skip
    machine.observe(seen(port=2222))
    assert machine.place == "10.0.0.1:2222"


def test_another_offer_has_another_machine(machine: Machine) -> None:
    assert Machine(REQUEST, None).try_offer(OFFER) is False
    machine.observe(seen())
    assert machine.try_offer(OFFER) is False
    assert machine.try_offer(OFFER.model_copy(update={"zone": "zone-b"})) is True
    assert (machine.seen, machine.known_id, machine.place) == (None, None, "")


def test_a_machine_costs_from_what_its_provider_says_or_from_when_it_was_seen_to_run(
    machine: Machine,
) -> None:
    machine.observe(seen(MachineState.MAKING))
    assert machine.seen is not None
    assert machine.seen.began_at is None
    machine.observe(seen())
    assert machine.seen.began_at == NOW
    machine.observe(seen(began_at=NOW - HOUR))
    machine.observe(seen())
    assert machine.seen.began_at == NOW - HOUR


def test_what_is_seen_is_told(machine: Machine) -> None:
    told = machine.observe(seen())
    assert (told.type, told.message) == ("lease.seen", "the provider says: running vm-1")
    assert machine.observe(seen(provider_machine_id=None)).message == "the provider says: running"


@pytest.mark.parametrize("state", [MachineState.RUNNING, MachineState.MAKING])
def test_a_machine_that_runs_or_is_made_is_not_lost(machine: Machine, state: MachineState) -> None:
    machine.observe(seen())
    assert machine.loss(seen(state)) is None
    assert machine.loss(seen(state, provider_machine_id=None)) is None
    assert not machine.is_lost_at_provider


@pytest.mark.parametrize("state", [MachineState.STOPPED, MachineState.GONE])
def test_a_machine_that_has_ended_is_lost_since_then(machine: Machine, state: MachineState) -> None:
    machine.observe(seen())
    told = machine.loss(seen(state, ended_at=NOW - HOUR))
    assert told == f"the provider says that the machine is {state}"
    assert machine.is_lost_at_provider
    assert machine.ended_at == NOW - HOUR
    assert machine.loss(seen(state, reason="its disk failed")) == "its disk failed"
    assert machine.ended_at == NOW - HOUR


def test_a_machine_whose_name_another_one_has_is_lost(machine: Machine) -> None:
    machine.observe(seen())
    told = machine.loss(seen(provider_machine_id="vm-2"))
    assert told == "vm-1 is gone, and another machine has its name"
    assert machine.is_lost_at_provider


@pytest.mark.parametrize(("machine_id", "is_taken"), [("", True), ("vm-1", True), ("vm-0", False)])
def test_a_notification_is_taken_if_it_is_about_this_machine(
    machine: Machine, machine_id: str, is_taken: bool
) -> None:
    at = NOW - HOUR
    machine.observe(seen())
    machine.take_notification(
        MachineNotification(what="it was preempted", at=at, provider_machine_id=machine_id)
    )
    assert machine.ended_at == (at if is_taken else None)
    told = "it was preempted at 2026-03-01 11:00:00 UTC"
    assert (machine.loss(seen(MachineState.GONE)) == told) is is_taken


def test_a_notification_is_taken_while_the_machine_was_not_seen(machine: Machine) -> None:
    machine.take_notification(
        MachineNotification(what="it was deleted", at=NOW, provider_machine_id="vm-7")
    )
    assert machine.ended_at == NOW


def test_an_end_is_what_the_provider_says_or_now(machine: Machine) -> None:
    machine.observe(seen(began_at=NOW - HOUR))
    gone = MachineObservation(state=MachineState.GONE)
    ended = machine.ended(gone)
    assert (ended.state, ended.began_at, ended.ended_at) == (MachineState.GONE, NOW - HOUR, NOW)
    assert ended.provider_machine_id == "vm-1"
    machine.observe(seen(ended_at=NOW - HOUR / 4))
    assert machine.ended(gone).ended_at == NOW - HOUR / 4
    said = gone.model_copy(update={"ended_at": NOW - HOUR / 2})
    assert machine.ended(said).ended_at == NOW - HOUR / 2


def test_an_unseen_machine_has_the_times_that_its_provider_says_at_the_end(
    machine: Machine,
) -> None:
    gone = seen(MachineState.GONE, began_at=NOW - HOUR, ended_at=NOW - HOUR / 2)
    ended = machine.ended(gone)
    assert (ended.began_at, ended.ended_at) == (NOW - HOUR, NOW - HOUR / 2)


@pytest.mark.parametrize(("price", "cost"), [(None, 1000), (4000, 4000)])
def test_the_machine_of_an_earlier_offer_is_paid_by_its_own_price(
    machine: Machine, price: int | None, cost: int
) -> None:
    machine.observe(seen(began_at=NOW - HOUR, microcredits_per_hour=price))
    machine.is_lost_at_provider = True
    machine.take_notification(MachineNotification(what="it was preempted", at=NOW))
    machine.abandon(machine.ended(MachineObservation(state=MachineState.GONE)))
    machine.try_offer(OFFER.model_copy(update={"zone": "zone-b"}))
    assert machine.earlier_microcredits == cost
    assert (machine.is_lost_at_provider, machine.notification) == (False, None)


def test_the_machine_of_an_earlier_offer_is_paid_once(machine: Machine) -> None:
    machine.observe(seen(began_at=NOW - HOUR))
    machine.abandon(machine.ended(MachineObservation(state=MachineState.GONE)))
    machine.try_offer(OFFER.model_copy(update={"zone": "zone-b"}))
    again = seen(MachineState.GONE, began_at=NOW - HOUR, ended_at=NOW)
    machine.abandon(machine.ended(again))
    assert machine.earlier_microcredits == 1000
    machine.try_offer(OFFER)
    later = seen(MachineState.GONE, began_at=NOW, ended_at=NOW + HOUR)
    machine.abandon(machine.ended(later))
    assert machine.earlier_microcredits == 2000


def test_the_machine_of_the_last_offer_ends_once_and_is_not_an_earlier_one_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.observe(seen(began_at=NOW - HOUR))
    gone = MachineObservation(state=MachineState.GONE)
    machine.abandon(machine.ended(gone))
    monkeypatch.setattr(workflow, "now", lambda: NOW + HOUR)
    assert machine.ended(gone).ended_at == NOW
    assert machine.earlier_microcredits == 0


def test_a_machine_that_never_cost_anything_adds_nothing(machine: Machine) -> None:
    machine.abandon(machine.ended(MachineObservation(state=MachineState.GONE)))
    assert machine.earlier_microcredits == 0


def test_a_machine_goes_on_as_the_run_before_knew_it() -> None:
    progress = LeaseProgress(
        sequence=3, status=LeaseStatus.READY, offer=OFFER, seen=seen(),
        is_lost_at_provider=True, earlier_microcredits=7,
    )  # fmt: skip
    machine = Machine(REQUEST, progress)
    assert (machine.offer, machine.known_id, machine.earlier_microcredits) == (OFFER, "vm-1", 7)
    assert machine.is_lost_at_provider
    assert not Machine(REQUEST, None).is_lost_at_provider
