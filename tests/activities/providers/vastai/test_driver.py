"""Vast.ai's instances, where its API leaves room for mistakes."""

from collections.abc import Callable

import pytest

from activities.providers.base import (
    CapacityExhausted,
    ProviderError,
    RequestRefused,
    Unavailable,
)
from activities.providers.vastai.driver import VastMachines
from activities.secrets.machine_keys import host_key_fingerprint
from activities.secrets.platform_key import fingerprint_of
from activities.secrets.region_keys import region_public_key
from tests.activities.providers.vastai.conftest import Sessions
from tests.activities.providers.vastai.test_driver_contract import ASK, OFFER
from tests.doubles.rented.faults import FaultKind
from tests.doubles.vastai.double import VastDouble
from workflows.contracts.machines import MachineObservation, MachineSpec
from workflows.contracts.statuses import MachineState

OURS, THEIRS = "prv-01abc", "prv-02def"
NAME = "baseload-lea-1"
LABEL = f"{NAME}.{OURS}"
SPEC = MachineSpec(
    lifetime_s=3600,
    tags={"region": "reg-1"},
    image="pytorch/pytorch:2.9",
    disk_size_gb=40,
    env={"BASELOAD_PLACE": "rented"},
)
RUNS_AFTER_S = 71


@pytest.fixture
def machines(vastai: VastDouble, session_with: Sessions) -> VastMachines:
    return VastMachines(session_with(vastai), OURS)


def found_by(machines: VastMachines) -> MachineObservation:
    found = machines.find(NAME, "bg")
    assert found is not None
    return found


def test_two_installations_with_one_account_see_their_own_instances_alone(
    vastai: VastDouble, session_with: Sessions
) -> None:
    session = session_with(vastai)
    machines, others = VastMachines(session, OURS), VastMachines(session, THEIRS)
    others.create(NAME, OFFER, SPEC)
    assert machines.find(NAME, "bg") is None
    assert list(machines.list_owned()) == []
    another = OFFER.model_copy(update={"provider_offer_id": "7000001"})
    machines.create(NAME, another, SPEC)
    machines.terminate(NAME, "bg")
    assert machines.find(NAME, "bg") is None
    assert [each.machine_name for each in others.list_owned()] == [NAME]


def test_an_instance_is_the_image_with_both_keys_in_its_script(
    vastai: VastDouble, machines: VastMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    (instance,) = vastai.instances.by_id.values()
    start = instance.start
    assert (instance.label, instance.disk_gb) == (LABEL, 40.0)
    assert (start.image, start.runtype) == ("pytorch/pytorch:2.9", "ssh_direc ssh_proxy")
    assert start.published == ["10022:10022"]
    assert set(start.env) == {"BASELOAD_PLACE", "PUBLIC_KEY", "BASELOAD_OFFER"}
    assert region_public_key("reg-1") in start.onstart
    assert len(start.onstart) < 4096


def test_the_host_key_of_an_instance_is_the_one_that_was_expected_of_it(
    make_vastai: Callable[..., VastDouble], session_with: Sessions
) -> None:
    double = make_vastai()
    machines = VastMachines(session_with(double), OURS)
    machines.create(NAME, OFFER, SPEC)
    double.clock.advance(RUNS_AFTER_S)
    found = found_by(machines)
    assert found.is_reachable
    assert found.provider_machine_id is not None
    shown = double.boot.public_key(found.provider_machine_id)
    assert found.minion_id == fingerprint_of(shown) == host_key_fingerprint(NAME)
    (instance,) = double.instances.by_id.values()
    assert instance.own_address is not None
    assert (found.host, found.port) == (instance.own_address.host, instance.own_address.port)


def test_what_a_refusal_leaves_is_destroyed_at_once(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.fault(FaultKind.FAILED_BUT_MADE, "asks.accept")
    with pytest.raises(RequestRefused, match="bid is too low"):
        machines.create(NAME, OFFER, SPEC)
    assert vastai.instances.made == 1
    assert vastai.meter.running() == []


def test_a_refusal_with_http_200_is_one(vastai: VastDouble, machines: VastMachines) -> None:
    vastai.fault(FaultKind.FAILED_WITH_200, "asks.accept")
    with pytest.raises(RequestRefused, match="no machine could be had"):
        machines.create(NAME, OFFER, SPEC)
    assert vastai.instances.made == 0


@pytest.mark.parametrize("ask", [ASK, 1])
def test_an_offer_that_is_gone_or_never_was_is_exhausted(
    vastai: VastDouble, machines: VastMachines, ask: int
) -> None:
    vastai.fault(FaultKind.NO_CAPACITY, "asks.accept")
    offer = OFFER.model_copy(update={"provider_offer_id": str(ask)})
    with pytest.raises(CapacityExhausted, match="no_such_ask"):
        machines.create(NAME, offer, SPEC)
    assert vastai.instances.made == 0


def test_an_instance_that_waits_for_its_gpus_is_destroyed_and_exhausted(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.fault(FaultKind.SCHEDULED, "asks.accept")
    with pytest.raises(CapacityExhausted, match="somebody else's"):
        machines.create(NAME, OFFER, SPEC)
    assert vastai.instances.made == 1
    assert vastai.meter.running() == []


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.ERROR_AFTER])
def test_an_acceptance_without_a_clear_answer_is_never_repeated(
    vastai: VastDouble, machines: VastMachines, kind: FaultKind
) -> None:
    vastai.fault(kind, "asks.accept")
    with pytest.raises(Unavailable):
        machines.create(NAME, OFFER, SPEC)
    assert vastai.calls.count("asks.accept") == 1
    assert machines.create(NAME, OFFER, SPEC).offer_label == OFFER.label
    assert vastai.calls.count("asks.accept") == 1


def test_the_price_with_its_disk_is_known_from_the_creation(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.fault(FaultKind.DEARER, "asks.accept", factor=3.0)
    created = machines.create(NAME, OFFER, SPEC)
    assert created.state is MachineState.MAKING
    assert created.microcredits_per_hour == pytest.approx(930_000 + 40 * 0.15 / 720 * 1e6, abs=1)
    assert created.began_at is not None


def test_of_two_instances_of_one_label_the_older_one_stays(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.served.list_lag_s = 60.0
    first = machines.create(NAME, OFFER, SPEC)
    another = OFFER.model_copy(update={"provider_offer_id": "7000001"})
    second = machines.create(NAME, another, SPEC)
    assert second.provider_machine_id != first.provider_machine_id
    vastai.clock.advance(60)
    assert found_by(machines).provider_machine_id == first.provider_machine_id
    assert [str(number) for number in vastai.instances.by_id] == [first.provider_machine_id]


def test_an_older_instance_that_appears_late_does_not_cost_the_one_that_runs(
    vastai: VastDouble, machines: VastMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    ((late_id, late),) = vastai.instances.by_id.items()
    vastai.instances.by_id.clear()  # Its answer is lost, and no list shows it yet.
    another = OFFER.model_copy(update={"provider_offer_id": "7000001"})
    running = machines.create(NAME, another, SPEC)
    vastai.clock.advance(RUNS_AFTER_S)
    vastai.instances.by_id[late_id] = late
    late.actual = "loading"
    assert found_by(machines).provider_machine_id == running.provider_machine_id
    assert [str(number) for number in vastai.instances.by_id] == [running.provider_machine_id]


def test_a_release_destroys_every_instance_of_the_label_and_says_so(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.served.list_lag_s = 60.0
    for ask in ("7000001", "7000002"):
        machines.create(NAME, OFFER.model_copy(update={"provider_offer_id": ask}), SPEC)
    vastai.clock.advance(60)
    assert "2 instances had the label" in machines.terminate(NAME, "bg")
    assert vastai.instances.by_id == {}


@pytest.mark.parametrize("is_200", [False, True])
def test_what_is_missing_is_destroyed(
    vastai: VastDouble, session_with: Sessions, is_200: bool
) -> None:
    vastai.served.missing_is_200 = is_200
    session_with(vastai).destroy(4242)
    assert vastai.calls == ["instances.destroy"]


def test_every_page_of_instances_is_read(
    vastai: VastDouble, machines: VastMachines, session_with: Sessions
) -> None:
    template = vastai.market.offers[ASK]
    for number in range(27):
        vastai.market.add(type(template)(8000000 + number, "RTX 4090", 1, 24564, 0.3))
        offer = OFFER.model_copy(update={"provider_offer_id": str(8000000 + number)})
        machines.create(f"baseload-lea-{number}", offer, SPEC)
    assert len(machines.list_owned()) == 27
    assert machines.find("baseload-lea-26", "bg") is not None


def test_a_container_that_cannot_start_is_stopped_and_says_why(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.fault(FaultKind.NEVER_STARTS, "boot")
    machines.create(NAME, OFFER, SPEC)
    vastai.clock.advance(RUNS_AFTER_S)
    found = found_by(machines)
    assert found.state is MachineState.STOPPED
    assert "OCI runtime create failed" in found.reason


@pytest.mark.parametrize("kind", [FaultKind.PORTS_LATE, FaultKind.NO_PORTS])
def test_an_instance_without_a_port_is_not_reachable(
    vastai: VastDouble, machines: VastMachines, kind: FaultKind
) -> None:
    vastai.fault(kind, "boot", seconds=600)
    machines.create(NAME, OFFER, SPEC)
    vastai.clock.advance(RUNS_AFTER_S)
    found = found_by(machines)
    assert (found.state, found.is_reachable) == (MachineState.RUNNING, False)
    assert "no public port" in found.reason


def test_an_instance_whose_host_is_away_is_neither_reachable_nor_gone(
    vastai: VastDouble, machines: VastMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    vastai.clock.advance(RUNS_AFTER_S)
    assert found_by(machines).is_reachable
    vastai.instances.happens("host_lost", LABEL)
    vastai.clock.advance(30)
    away = found_by(machines)
    assert (away.state, away.is_reachable) == (MachineState.RUNNING, False)
    assert "offline" in away.reason
    vastai.instances.happens("host_back", LABEL)
    assert found_by(machines).is_reachable


@pytest.mark.parametrize("event", ["exit", "stop_by_hand"])
def test_an_instance_that_does_not_run_is_there_until_it_is_destroyed(
    vastai: VastDouble, machines: VastMachines, event: str
) -> None:
    machines.create(NAME, OFFER, SPEC)
    vastai.clock.advance(RUNS_AFTER_S)
    vastai.instances.happens(event, LABEL)
    assert found_by(machines).state is MachineState.STOPPED
    machines.terminate(NAME, "bg")
    assert vastai.meter.running() == []


def test_the_pauses_of_vast_ai_are_kept(vastai: VastDouble, machines: VastMachines) -> None:
    begin = vastai.clock.now()
    for _ in range(4):
        machines.find(NAME, "bg")
    assert vastai.clock.now() - begin == pytest.approx(6.0, abs=0.01)
    assert vastai.calls == ["instances.list"] * 4


def test_a_call_that_is_one_too_many_says_when_to_come_again(
    vastai: VastDouble, machines: VastMachines
) -> None:
    vastai.fault(FaultKind.TOO_MANY, "asks.accept")
    with pytest.raises(Unavailable, match="too frequent") as caught:
        machines.create(NAME, OFFER, SPEC)
    error: ProviderError = caught.value
    assert error.retry_after_s == 12.0
    before = vastai.clock.now()
    machines.create(NAME, OFFER, SPEC)
    assert vastai.clock.now() - before == pytest.approx(12.0, abs=0.01)


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.ERROR])
def test_what_passes_by_itself_is_unavailable(
    vastai: VastDouble, machines: VastMachines, kind: FaultKind
) -> None:
    vastai.fault(kind, "instances.list")
    with pytest.raises(Unavailable):
        machines.list_owned()


def test_a_key_that_is_not_accepted_is_refused_and_never_quoted(
    vastai: VastDouble, session_with: Sessions
) -> None:
    wrong = "wrong_key_of_nobody"
    machines = VastMachines(session_with(vastai, wrong), OURS)
    with pytest.raises(RequestRefused, match="the key is not accepted") as caught:
        machines.find(NAME, "bg")
    assert wrong not in str(caught.value)


def test_an_offer_of_another_kind_is_refused_before_anything_is_accepted(
    vastai: VastDouble, machines: VastMachines
) -> None:
    with pytest.raises(RequestRefused, match="number of an ask"):
        machines.create(NAME, OFFER.model_copy(update={"provider_offer_id": "NVIDIA L4"}), SPEC)
    assert vastai.instances.made == 0
