"""RunPod's pods, where its API leaves room for mistakes."""

from collections.abc import Callable

import pytest

from activities.providers.base import (
    CapacityExhausted,
    ProviderError,
    RequestRefused,
    Unavailable,
)
from activities.providers.runpod.driver import RunPodMachines
from activities.providers.shared_list import SharedList
from activities.secrets.login_keys import login_public_key
from activities.secrets.machine_keys import host_key_fingerprint
from activities.secrets.platform_key import fingerprint_of
from activities.secrets.region_keys import region_public_key
from tests.activities.providers.runpod.conftest import Sessions
from tests.activities.providers.runpod.test_driver_contract import OFFER
from tests.activities.waiting import wait_for
from tests.doubles.rented.faults import FaultKind
from tests.doubles.runpod.double import RunPodDouble
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import MachineState

OURS, THEIRS = "prv-01abc", "prv-02def"
NAME = "baseload-lea-1"
SPEC = MachineSpec(
    lifetime_s=3600,
    tags={"region": "reg-1"},
    image="runpod/base:1.0",
    disk_size_gb=40,
    env={"BASELOAD_PLACE": "rented"},
)
RUNS_AFTER_S = 66


@pytest.fixture
def machines(runpod: RunPodDouble, session_with: Sessions) -> RunPodMachines:
    return RunPodMachines(session_with(runpod), OURS)


def test_two_installations_with_one_account_see_their_own_pods_alone(
    runpod: RunPodDouble, machines: RunPodMachines, session_with: Sessions
) -> None:
    others = RunPodMachines(session_with(runpod), THEIRS)
    others.create(NAME, OFFER, SPEC)
    assert machines.find(NAME, "secure") is None
    assert list(machines.list_owned()) == []
    machines.create(NAME, OFFER, SPEC)
    machines.terminate(NAME, "secure")
    assert machines.find(NAME, "secure") is None
    assert others.find(NAME, "secure") is not None
    assert [each.machine_name for each in others.list_owned()] == [NAME]


def test_a_pod_that_a_person_has_named_otherwise_is_not_ours(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create("somebody", OFFER, SPEC)
    assert list(machines.list_owned()) == []


def test_of_two_pods_of_one_name_the_older_one_stays(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.renting.list_lag_s = 10.0
    first = machines.create(NAME, OFFER, SPEC)
    runpod.clock.advance(1)
    second = machines.create(NAME, OFFER, SPEC)
    assert second.provider_machine_id != first.provider_machine_id
    runpod.clock.advance(10)
    found = machines.find(NAME, "secure")
    assert found is not None
    assert found.provider_machine_id == first.provider_machine_id
    assert list(runpod.pods.by_id) == [first.provider_machine_id]


def test_an_older_pod_that_appears_late_does_not_cost_the_one_that_runs(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    (late,) = runpod.pods.by_id.values()
    runpod.pods.by_id.clear()  # Its answer is lost, and no list shows it yet.
    runpod.clock.advance(1)
    running = machines.create(NAME, OFFER, SPEC)
    runpod.clock.advance(600)
    late.status = "STARTING"
    runpod.pods.by_id[late.id] = late
    found = machines.find(NAME, "secure")
    assert found is not None
    assert found.provider_machine_id == running.provider_machine_id
    assert list(runpod.pods.by_id) == [running.provider_machine_id]


def test_a_release_deletes_every_pod_of_the_name_and_says_so(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.renting.list_lag_s = 10.0
    for _ in range(2):
        machines.create(NAME, OFFER, SPEC)
    runpod.clock.advance(11)
    assert "2 pods had the name" in machines.terminate(NAME, "secure")
    assert runpod.pods.by_id == {}


def test_a_pod_is_the_image_with_a_disk_and_a_port_for_ssh_alone(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    (pod,) = runpod.pods.by_id.values()
    assert pod.name == f"{NAME}.{OURS}"
    assert pod.asked["image"] == "runpod/base:1.0"
    assert pod.asked["disk"] == 40
    assert pod.asked["ports"] == ["22/tcp"]
    assert pod.env["PUBLIC_KEY"] == region_public_key("reg-1")
    assert pod.env["BASELOAD_PLACE"] == "rented"
    assert set(pod.env) == {
        "BASELOAD_PLACE", "PUBLIC_KEY", "BASELOAD_OFFER", "BASELOAD_HOST_KEY", "BASELOAD_START",
    }  # fmt: skip


def test_polls_share_a_list_and_neither_a_missing_pod_nor_a_creation_is_answered_by_it(
    runpod: RunPodDouble, session_with: Sessions
) -> None:
    session = session_with(runpod, listed=SharedList(60.0))
    machines = RunPodMachines(session, OURS)
    machines.create(NAME, OFFER, SPEC)
    assert machines.find(NAME, "secure") is not None, "which no list has shown yet"
    before = runpod.calls.count("pods.list")
    for _ in range(5):
        assert machines.find(NAME, "secure") is not None
    assert runpod.calls.count("pods.list") == before
    other = f"{NAME}-other"
    machines.create(other, OFFER, SPEC)
    assert machines.find(other, "secure") is not None
    machines.terminate(other, "secure")
    assert machines.find(NAME, "secure") is not None
    machines.create(NAME, OFFER, SPEC)
    assert list(runpod.pods.by_id) != [], "the creation has found the first"
    assert len(runpod.pods.by_id) == 1


def test_a_machine_with_a_key_of_its_own_lets_in_no_other(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create(NAME, OFFER, SPEC.model_copy(update={"has_own_key": True}))
    (pod,) = runpod.pods.by_id.values()
    own = login_public_key("reg-1", host_key_fingerprint(NAME))
    assert pod.env["PUBLIC_KEY"] == own != region_public_key("reg-1")


def test_a_job_without_an_image_gets_that_of_the_setting(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create(NAME, OFFER, SPEC.model_copy(update={"image": ""}))
    (pod,) = runpod.pods.by_id.values()
    assert pod.asked["image"].startswith("runpod/pytorch:")


def test_a_machine_without_a_region_is_refused_before_anything_is_asked(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    with pytest.raises(RequestRefused, match="its tags name no region"):
        machines.create(NAME, OFFER, SPEC.model_copy(update={"tags": {}}))
    assert runpod.pods.made == 0


def test_the_host_key_of_a_pod_is_the_one_that_was_expected_of_it(
    make_runpod: Callable[..., RunPodDouble], session_with: Sessions
) -> None:
    double = make_runpod(rate=300.0)
    machines = RunPodMachines(session_with(double), OURS)
    machines.create(NAME, OFFER, SPEC)

    def is_reachable() -> bool:
        found = machines.find(NAME, "secure")
        return found is not None and found.is_reachable

    wait_for(is_reachable, "it has an address")
    found = machines.find(NAME, "secure")
    assert found is not None
    assert found.provider_machine_id is not None
    shown = double.boot.public_key(found.provider_machine_id)
    assert found.minion_id == fingerprint_of(shown) == host_key_fingerprint(NAME)
    assert found.user == "root"


def test_the_price_is_known_from_the_answer_to_the_creation_with_the_disk(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.fault(FaultKind.DEARER, "pods.create", factor=3.0)
    created = machines.create(NAME, OFFER, SPEC)
    assert created.state is MachineState.MAKING
    assert created.microcredits_per_hour is not None
    assert 3 * 690_000 < created.microcredits_per_hour < 3 * 690_000 + 10_000
    charged = sum(each.price for each in runpod.meter.charges)
    assert created.microcredits_per_hour == pytest.approx(charged, abs=1)


def test_a_pod_without_a_public_port_says_so(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.fault(FaultKind.NO_PORTS, "boot")
    machines.create(NAME, OFFER, SPEC)
    runpod.clock.advance(RUNS_AFTER_S)
    found = machines.find(NAME, "secure")
    assert found is not None
    assert (found.state, found.is_reachable) == (MachineState.RUNNING, False)
    assert "no public port" in found.reason


@pytest.mark.parametrize("event", ["exit", "stop_by_hand"])
def test_a_pod_that_has_exited_is_there_until_it_is_deleted(
    runpod: RunPodDouble, machines: RunPodMachines, event: str
) -> None:
    machines.create(NAME, OFFER, SPEC)
    runpod.clock.advance(RUNS_AFTER_S)
    runpod.pods.happens(event, f"{NAME}.{OURS}")
    found = machines.find(NAME, "secure")
    assert found is not None
    assert found.state is MachineState.STOPPED
    assert "EXITED" in found.reason
    machines.terminate(NAME, "secure")
    assert runpod.pods.by_id == {}


def test_a_pod_that_a_person_has_deleted_is_gone(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    runpod.pods.happens("delete_by_hand", f"{NAME}.{OURS}")
    assert machines.find(NAME, "secure") is None


def test_a_lack_is_told_from_a_mistake_although_both_are_400(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.fault(FaultKind.NO_CAPACITY, "pods.create")
    with pytest.raises(CapacityExhausted, match="no longer any instances available"):
        machines.create(NAME, OFFER, SPEC)
    runpod.fault(FaultKind.ERROR, "pods.create", status=400)
    with pytest.raises(RequestRefused, match="400"):
        machines.create(NAME, OFFER, SPEC)
    assert runpod.pods.made == 0


def test_an_account_without_a_balance_is_refused_by_name(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.renting.balance = 0.0
    with pytest.raises(RequestRefused, match="balance"):
        machines.create(NAME, OFFER, SPEC)


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.TOO_MANY, FaultKind.ERROR])
def test_what_passes_by_itself_is_unavailable(
    runpod: RunPodDouble, machines: RunPodMachines, kind: FaultKind
) -> None:
    runpod.fault(kind, "pods.list")
    with pytest.raises(Unavailable) as caught:
        machines.list_owned()
    error: ProviderError = caught.value
    assert (error.retry_after_s is not None) == (kind is FaultKind.TOO_MANY)


def test_an_error_after_the_creation_leaves_the_pod_to_be_found(
    runpod: RunPodDouble, machines: RunPodMachines
) -> None:
    runpod.fault(FaultKind.ERROR_AFTER, "pods.create")
    with pytest.raises(Unavailable):
        machines.create(NAME, OFFER, SPEC)
    assert machines.create(NAME, OFFER, SPEC).offer_label == OFFER.label
    assert runpod.pods.made == 1


def test_a_key_that_is_not_accepted_is_refused_and_never_quoted(
    runpod: RunPodDouble, session_with: Sessions
) -> None:
    wrong = "rpa_wrong_key_of_nobody"
    machines = RunPodMachines(session_with(runpod, wrong), OURS)
    with pytest.raises(RequestRefused, match="the key is not accepted") as caught:
        machines.find(NAME, "secure")
    assert wrong not in str(caught.value)
