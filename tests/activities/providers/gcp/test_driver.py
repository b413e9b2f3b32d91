"""Machines at Google: found by name, made once, proven by their key, ended; and what it refuses."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core.exceptions import NotFound

from activities.providers.base import CapacityExhausted, NotYet, RequestRefused, Unavailable
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.driver import GoogleMachines
from activities.providers.gcp.network import make_network, remove_network
from activities.providers.gcp.session import GoogleSession
from activities.providers.gcp.subnetworks import make_subnetwork, remove_subnetwork
from activities.secrets.platform_key import fingerprint_of
from tests.activities.waiting import wait_for
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.resources import path_of
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

OURS = "prv-01abc"
NAME, ZONE, REGION = "baseload-lea-1", "us-central1-a", "us-central1"
OFFER = MachineOffer(
    zone=ZONE,
    machine_type="a2-highgpu-1g",
    gpu_type="A100",
    gpu_count=1,
    microcredits_per_hour=4_000_000,
    price_is_estimate=True,
)
SPEC = MachineSpec(lifetime_s=3600, tags={"region": "reg-1", "baseload-lease": "lea-1"})
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"


@pytest.fixture
def machines(
    gcp: GcpDouble, google: GoogleSession, monkeypatch: pytest.MonkeyPatch
) -> GoogleMachines:
    """The driver of a project with a network in one region."""
    monkeypatch.setattr(
        "activities.providers.gcp.driver.region_public_key", {"reg-1": PUBLIC_KEY}.get
    )
    make_network(google, OURS)
    make_subnetwork(google, OURS, REGION)
    return GoogleMachines(google, OURS)


def running(machines: GoogleMachines) -> MachineObservation:
    """The machine once it has an address and a key."""

    def look() -> MachineObservation | None:
        seen = machines.find(NAME, ZONE)
        return seen if seen is not None and seen.is_reachable else None

    found = wait_for(look, "an address and a key")
    assert found is not None
    return found


def test_a_deletion_that_comes_late_ends_no_newer_machine_of_the_name(
    gcp: GcpDouble, machines: GoogleMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    instances = machines._instances
    ask = instances.delete_unary
    held: list[dict[str, Any]] = []
    with monkeypatch.context() as under_way:
        under_way.setattr(instances, "delete_unary", lambda **asked: held.append(asked))
        machines.terminate(NAME, ZONE)
    gone(machines)
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    with pytest.raises(NotFound):
        ask(**held[0])
    assert names(gcp) == [NAME]


def test_a_machine_that_is_not_found_by_its_number_is_deleted_by_its_name(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    number = running(machines).provider_machine_id
    gcp.cloud.knows_numbers = False
    remark = machines.terminate(NAME, ZONE)
    assert remark == (
        f"instance {NAME}: deleted by its name, because its number {number} was not found"
    )
    wait_for(lambda: machines.find(NAME, ZONE) is None, "it is gone")
    assert names(gcp) == []


def test_a_newer_machine_is_not_deleted_because_an_older_number_is_not_found(
    gcp: GcpDouble, machines: GoogleMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    instances = machines._instances
    ask = instances.delete_unary

    def replaced_meanwhile(**asked: Any) -> Any:
        monkeypatch.setattr(instances, "delete_unary", ask)
        gone(machines)
        machines.create(NAME, OFFER, SPEC)
        running(machines)
        return ask(**asked)

    monkeypatch.setattr(instances, "delete_unary", replaced_meanwhile)
    assert machines.terminate(NAME, ZONE) == ""
    assert names(gcp) == [NAME]


def test_when_a_machine_began_and_ended_is_told_by_google_s_own_clock(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    gcp.cloud.clock.skew_s = -240.0
    machines.create(NAME, OFFER, SPEC)
    seen = running(machines)
    assert seen.provider_machine_id is not None
    gone(machines)
    past = machines.billed_period(NAME, ZONE, seen.provider_machine_id)
    assert past.state is MachineState.GONE
    assert past.began_at is not None
    assert past.ended_at is not None
    lasted_s = (past.ended_at - past.began_at).total_seconds()
    assert lasted_s == pytest.approx(gcp.cloud.meter.seconds(NAME), abs=0.1)
    assert seen.began_at is not None
    assert abs((seen.began_at - past.began_at).total_seconds()) < 0.1


def test_a_machine_that_was_never_had_has_cost_nothing(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    gcp.cloud.durations.insert_s = 1000.0
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(machines.create, NAME, OFFER, SPEC)
        seen = wait_for(lambda: machines.find(NAME, ZONE), "it is being made")
        gone(machines)
    assert isinstance(made.exception(), NotYet)
    assert seen is not None
    assert (seen.state, seen.began_at) == (MachineState.MAKING, None)
    assert seen.provider_machine_id is not None
    past = machines.billed_period(NAME, ZONE, seen.provider_machine_id)
    assert past.began_at is None
    assert gcp.cloud.meter.charges == []


def test_a_machine_stopped_by_hand_costs_until_then(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    with gcp.cloud.lock:
        (vm,) = gcp.cloud.machines.vms.values()
        gcp.cloud.machines.stop_by_hand(vm.path)

    def look() -> MachineObservation | None:
        seen = machines.find(NAME, ZONE)
        return seen if seen is not None and seen.state is MachineState.STOPPED else None

    seen = wait_for(look, "it has stopped")
    assert seen is not None
    assert seen.provider_machine_id is not None
    assert seen.ended_at is not None
    gone(machines)
    past = machines.billed_period(NAME, ZONE, seen.provider_machine_id)
    assert past.ended_at is not None
    assert abs((past.ended_at - seen.ended_at).total_seconds()) < 0.1


def gone(machines: GoogleMachines) -> None:
    machines.terminate(NAME, ZONE)
    wait_for(lambda: machines.find(NAME, ZONE) is None, "it is gone")


def names(gcp: GcpDouble) -> list[str]:
    with gcp.cloud.lock:
        return [vm.name for vm in gcp.cloud.machines.vms.values()]


def test_a_machine_is_made_seen_listed_and_gone(gcp: GcpDouble, machines: GoogleMachines) -> None:
    machines.create(NAME, OFFER, SPEC)
    seen = running(machines)
    (vm,) = gcp.cloud.machines.vms.values()
    assert vm.address is not None
    assert seen.host == vm.address.host
    assert seen.minion_id == fingerprint_of(f"ssh-ed25519 {vm.host_keys['ssh-ed25519']}")
    assert seen.began_at is not None
    assert round((seen.microcredits_per_hour or 0) / 1e6, 2) == 3.73, "CPUs, A100, disks"
    (owned,) = machines.list_owned()
    assert (owned.machine_name, owned.zone) == (NAME, ZONE)
    assert owned.seen.began_at == seen.began_at
    gone(machines)
    assert machines.list_owned() == []
    assert names(gcp) == []


def test_a_machine_without_an_external_address_has_only_its_internal_one(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    outside = running(machines)
    with gcp.cloud.lock:
        (vm,) = gcp.cloud.machines.vms.values()
        vm.body["networkInterfaces"][0].pop("accessConfigs")
    seen = machines.find(NAME, ZONE)
    assert seen is not None
    assert (seen.host, seen.internal_host) == (None, outside.internal_host)
    assert (seen.minion_id, seen.is_reachable) == (outside.minion_id, False)


def test_a_machine_ends_by_itself_after_its_lifetime_and_carries_no_secret(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER.model_copy(update={"spot": True}), SPEC)
    (vm,) = gcp.cloud.machines.vms.values()
    scheduling = vm.body["scheduling"]
    assert scheduling["maxRunDuration"]["seconds"] == "3600"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert scheduling["provisioningModel"] == "SPOT"
    assert vm.body["labels"] == {
        "baseload-provider": OURS,
        "region": "reg-1",
        "baseload-lease": "lea-1",
        "baseload-offer": "a2-highgpu-1g-1xa100-spot",
    }
    assert vm.body.get("serviceAccounts", []) == []
    assert PUBLIC_KEY in vm.metadata()["ssh-keys"]
    assert "PRIVATE" not in str(vm.body)


def test_a_machine_lets_in_the_key_of_its_region_and_is_not_made_without_one(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    with pytest.raises(RequestRefused, match="name no region"):
        machines.create(NAME, OFFER, SPEC.model_copy(update={"tags": {}}))
    assert gcp.cloud.machines.vms == {}
    machines.create(NAME, OFFER, SPEC)
    (vm,) = gcp.cloud.machines.vms.values()
    assert vm.metadata()["ssh-keys"] == f"root:{PUBLIC_KEY}"


def made_as(gcp: GcpDouble, machines: GoogleMachines, offer: MachineOffer, **spec: Any) -> Any:
    """The instance resource of a machine that was made so."""
    machines.create(NAME, offer, SPEC.model_copy(update=spec))
    (vm,) = gcp.cloud.machines.vms.values()
    return vm.body


def ssds(body: Any) -> int:
    return sum(disk["type"] == "SCRATCH" for disk in body["disks"])


def test_a_machine_that_gpus_are_attached_to_has_them_and_a_local_ssd_for_each(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    offer = OFFER.model_copy(
        update={"machine_type": "n1-standard-16", "gpu_type": "T4", "gpu_count": 2}
    )
    body = made_as(gcp, machines, offer)
    (attached,) = body["guestAccelerators"]
    assert attached["acceleratorType"].endswith("/nvidia-tesla-t4")
    assert (attached["acceleratorCount"], ssds(body)) == (2, 2)
    assert body["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert not body["scheduling"]["automaticRestart"]


def test_a_machine_type_that_brings_its_ssds_is_given_none(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    offer = OFFER.model_copy(update={"machine_type": "a2-ultragpu-1g", "gpu_type": "A100-80GB"})
    assert ssds(made_as(gcp, machines, offer)) == 0


def test_a_storage_node_outlives_its_host_and_has_no_limit_that_google_refuses(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    offer = MachineOffer(zone=ZONE, machine_type="n1-standard-4", microcredits_per_hour=190_000)
    body = made_as(gcp, machines, offer, lifetime_s=10 * 365 * 24 * 3600)
    assert body["scheduling"] == {
        "onHostMaintenance": "MIGRATE",
        "automaticRestart": True,
        "preemptible": False,
        "provisioningModel": "STANDARD",
    }
    assert ssds(body) == 0
    assert "install-nvidia-driver" not in {item["key"] for item in body["metadata"]["items"]}
    disk = gcp.cloud.resources.get(path_of(body["disks"][0]["source"]))
    assert "ubuntu-os-cloud" in disk["sourceImage"]


def test_gpus_that_nobody_knows_how_to_have_are_not_left_out(machines: GoogleMachines) -> None:
    with pytest.raises(RequestRefused, match="no n1-standard-1 with 3×T4 is in the catalogue"):
        machines.create(
            NAME,
            OFFER.model_copy(
                update={"machine_type": "n1-standard-1", "gpu_type": "T4", "gpu_count": 3}
            ),
            SPEC,
        )


def test_an_insert_whose_answer_is_lost_makes_one_machine(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.LOST_REPLY, "compute.instances.insert"))
    with pytest.raises(Unavailable):
        machines.create(NAME, OFFER, SPEC)
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    assert names(gcp) == [NAME]
    assert gcp.cloud.machines.made == 1


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.STOCKOUT,
        FaultKind.STOCKOUT_AT_ONCE,
        FaultKind.OPERATION_QUOTA,
        FaultKind.QUOTA,
    ],
)
def test_what_is_not_to_be_had_is_exhausted_and_leaves_nothing(
    gcp: GcpDouble, machines: GoogleMachines, kind: FaultKind
) -> None:
    gcp.cloud.faults.add(Fault(kind, "compute.instances.insert"))
    with pytest.raises(CapacityExhausted):
        machines.create(NAME, OFFER, SPEC)
    wait_for(lambda: machines.find(NAME, ZONE) is None, "nothing of it is there")
    assert names(gcp) == []


def test_what_google_does_not_know_is_refused_in_its_words(machines: GoogleMachines) -> None:
    with pytest.raises(RequestRefused, match="n9-unheard-of"):
        machines.create(NAME, OFFER.model_copy(update={"machine_type": "n9-unheard-of"}), SPEC)


@pytest.mark.parametrize(
    "kind", [FaultKind.UNAVAILABLE, FaultKind.RATE_LIMIT, FaultKind.LOST_REQUEST]
)
def test_a_provider_that_does_not_answer_is_unavailable(
    gcp: GcpDouble, machines: GoogleMachines, kind: FaultKind
) -> None:
    gcp.cloud.faults.add(Fault(kind, "compute.instances.get"))
    with pytest.raises(Unavailable):
        machines.find(NAME, ZONE)


def test_a_machine_that_is_not_ours_is_neither_taken_nor_ended(
    gcp: GcpDouble, google: GoogleSession, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    others = GoogleMachines(google, "prv-02def")
    for ask in (others.find, others.terminate):
        with pytest.raises(RequestRefused, match="not ours"):
            ask(NAME, ZONE)
    assert others.list_owned() == []
    assert names(gcp) == [NAME]


def test_a_machine_whose_end_was_asked_for_is_asked_to_end_again(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    for _ in range(3):
        machines.terminate(NAME, ZONE)
    wait_for(lambda: machines.find(NAME, ZONE) is None, "it is gone")
    assert names(gcp) == []


def test_a_machine_whose_host_key_cannot_be_read_can_be_ended(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    machines.create(NAME, OFFER, SPEC)
    running(machines)
    gcp.cloud.faults.add(
        Fault(FaultKind.FORBIDDEN, "compute.instances.getGuestAttributes", times=None)
    )
    seen = machines.find(NAME, ZONE)
    assert seen is not None
    assert (seen.is_reachable, seen.minion_id) == (False, None)
    assert "host key cannot be read" in seen.reason
    gone(machines)
    assert names(gcp) == []


def test_a_preempted_machine_is_gone_with_its_disks(
    gcp: GcpDouble, machines: GoogleMachines
) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.PREEMPT, name=NAME))
    machines.create(NAME, OFFER.model_copy(update={"spot": True}), SPEC)
    wait_for(lambda: machines.find(NAME, ZONE) is None, "it was taken away")
    assert names(gcp) == []


def test_a_subnetwork_is_made_once_and_removed_before_its_network(
    google: GoogleSession, machines: GoogleMachines
) -> None:
    first = make_subnetwork(google, OURS, REGION)
    assert make_subnetwork(google, OURS, REGION) == first
    for _ in range(2):
        remove_subnetwork(google, OURS, REGION)
        remove_network(google, OURS)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize(
    ("machine_type", "gpu_type"), [("e2-standard-4", None), ("n1-standard-8", "T4")]
)
def test_a_machine_costs_what_was_offered_with_its_disks(
    machines: GoogleMachines, machine_type: str, gpu_type: str | None, *, spot: bool
) -> None:
    catalogue = gcp_catalogue()
    (kind,) = (
        one for one in catalogue.machines if (one.name, one.gpu_type) == (machine_type, gpu_type)
    )
    price = catalogue.price(kind, REGION)
    assert price is not None
    hourly = price.spot_microcredits_per_hour if spot else price.on_demand_microcredits_per_hour
    offer = MachineOffer(
        zone=ZONE,
        machine_type=machine_type,
        gpu_type=gpu_type,
        gpu_count=kind.gpu_count,
        spot=spot,
        microcredits_per_hour=hourly,
    )
    machines.create(NAME, offer, SPEC.model_copy(update={"disk_size_gb": 730}))
    assert running(machines).microcredits_per_hour == hourly + 100_000
