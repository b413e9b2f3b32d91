"""Compute Engine, asked by Google's own client library: one module, as importing it takes 1.3 s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh
import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from tests.activities.waiting import wait_for
from tests.doubles.gcp.boot import Address
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.google_clients import (
    IMAGES,
    ZONE,
    Clients,
    Machine,
    done,
    hostkeys,
    network_of,
)
from tests.doubles.gcp.login import PUBLIC, said


@pytest.fixture
def google(gcp: GcpDouble) -> Clients:
    return Clients(gcp)


def test_a_region_tells_its_zones_and_quotas(gcp: GcpDouble, google: Clients) -> None:
    gcp.project.limits["us-central1"] = {"NVIDIA_T4_GPUS": 2.0}
    region = google.Regions.get(project=gcp.project.id, region="us-central1")
    limits = {each.metric: each.limit for each in region.quotas}
    assert limits["NVIDIA_T4_GPUS"] == 2.0
    assert region.zones[0].endswith("/zones/us-central1-a")
    with pytest.raises(exceptions.NotFound):
        google.Regions.get(project=gcp.project.id, region="mars-north1")


def test_zones_offer_the_machines_and_gpus_they_have(gcp: GcpDouble, google: Clients) -> None:
    where = {"project": gcp.project.id, "zone": "us-west1-b"}
    names = {each.name for each in google.AcceleratorTypes.list(**where)}
    assert "nvidia-tesla-a100" in names
    assert "nvidia-a100-80gb" not in names
    kind = google.MachineTypes.get(**where, machine_type="a2-highgpu-1g")
    assert (kind.guest_cpus, kind.accelerators[0].guest_accelerator_count) == (12, 1)
    with pytest.raises(exceptions.NotFound):
        google.MachineTypes.get(**where, machine_type="a2-ultragpu-1g")
    image = google.Images.get_from_family(
        project="deeplearning-platform-release", family="common-cu129-ubuntu-2404-nvidia-580"
    )
    assert image.status == "READY"


def test_a_network_is_deleted_only_after_what_is_in_it(gcp: GcpDouble, google: Clients) -> None:
    subnetwork = network_of(gcp, google)
    where = {"project": gcp.project.id}
    with pytest.raises(exceptions.Conflict):
        google.Networks.insert_unary(network_resource=compute_v1.Network(name="net"), **where)
    ended = done(
        google.Networks.delete_unary(network="net", **where), google.GlobalOperations, **where
    )
    assert ended.error.errors[0].code == "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
    assert subnetwork in ended.error.errors[0].message
    region = {**where, "region": "us-west1"}
    asked = google.Subnetworks.delete_unary(subnetwork="net", **region)
    done(asked, google.RegionOperations, **region)
    asked = google.Networks.delete_unary(network="net", **where)
    assert not done(asked, google.GlobalOperations, **where).error.errors
    with pytest.raises(exceptions.NotFound):
        google.Networks.get(network="net", **where)
    assert list(google.Subnetworks.list(**region)) == []


@pytest.fixture
def machine(gcp: GcpDouble, google: Clients) -> Machine:
    network_of(gcp, google)
    return Machine(gcp, google)


def test_a_machine_is_charged_from_running_until_it_is_gone(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    gcp.cloud.durations.insert_s = 60.0
    asked = machine.insert()
    assert machine.get().status in ("PROVISIONING", "STAGING")
    assert gcp.cloud.meter.running() == []
    done(asked, google.ZoneOperations, **machine.where)
    found = machine.get()
    assert found.status == "RUNNING"
    assert found.network_interfaces[0].access_configs[0].nat_i_p.startswith("127.")
    assert machine.listed() == ["burst-1"]
    [charge] = gcp.cloud.meter.running()
    assert charge.price == round(1e6 * (8 * 0.0475 * 0.4 + 0.175))
    region = google.Regions.get(project=gcp.project.id, region="us-west1")
    used = {each.metric: each.usage for each in region.quotas if each.usage}
    assert used["PREEMPTIBLE_NVIDIA_T4_GPUS"] == 1.0
    assert used["SSD_TOTAL_GB"] == 100.0
    machine.delete()
    assert (gcp.cloud.meter.running(), machine.listed()) == ([], [])
    with pytest.raises(exceptions.NotFound):
        machine.get()
    assert gcp.cloud.uses == {}


def test_a_request_id_makes_one_machine_and_a_name_only_one(
    gcp: GcpDouble, machine: Machine
) -> None:
    first = machine.insert(request_id="5bbb4c3d-8b8c-4f57-b3a4-6ac7a9ba1a8d")
    again = machine.insert(request_id="5bbb4c3d-8b8c-4f57-b3a4-6ac7a9ba1a8d")
    assert again.name == first.name
    with pytest.raises(exceptions.Conflict, match="already exists"):
        machine.insert()
    assert len(gcp.cloud.machines.vms) == 1


def test_a_stockout_and_a_quota_are_told_by_the_operation(gcp: GcpDouble, machine: Machine) -> None:
    gcp.cloud.stock.set(ZONE, "nvidia-tesla-t4", 0)
    ended = machine.made()
    assert ended.http_error_status_code == 503
    assert ended.error.errors[0].code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert machine.is_gone()
    gcp.cloud.stock.capacity.clear()
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    ended = machine.made()
    assert ended.error.errors[0].code == "QUOTA_EXCEEDED"
    assert "'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally" in ended.error.errors[0].message
    assert (gcp.cloud.meter.charges, gcp.cloud.uses) == ([], {})


def test_a_machine_that_google_would_refuse_is_refused(machine: Machine) -> None:
    with pytest.raises(exceptions.BadRequest, match="live migration"):
        machine.insert(scheduling={"on_host_maintenance": "MIGRATE"})
    with pytest.raises(exceptions.BadRequest, match="image resource cannot be found"):
        machine.insert(
            disks=[{"boot": True, "initialize_params": {"source_image": f"{IMAGES}/gone"}}]
        )
    with pytest.raises(exceptions.BadRequest, match="does not exist in zone"):
        machine.insert(machine_type=f"zones/{ZONE}/machineTypes/a2-highgpu-1g")


def test_a_lost_reply_leaves_the_machine_that_was_made(gcp: GcpDouble, machine: Machine) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.LOST_REPLY, "compute.instances.insert"))
    with pytest.raises((exceptions.GoogleAPICallError, OSError)):
        machine.insert()
    assert machine.get().name == "burst-1"


def test_preemption_ends_the_machine_and_is_in_the_operations(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.PREEMPT, "boot"))
    machine.made()
    wait_for(machine.is_gone, "the end of the preempted machine", 10)
    operations = google.ZoneOperations.list(
        request={**machine.where, "filter": 'operationType="compute.instances.preempted"'}
    )
    assert [each.target_link.endswith(machine.path) for each in operations] == [True]
    assert gcp.cloud.meter.running() == []
    entries = [each["protoPayload"]["methodName"] for each in gcp.cloud.audit.written]
    assert entries == ["v1.compute.instances.insert"] * 2 + ["compute.instances.preempted"]


def test_host_keys_are_published_once_sshd_has_them_unless_a_fault_forbids(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    other = Machine(gcp, google, "burst-2")
    gcp.cloud.faults.add(Fault(FaultKind.NO_SSH, "boot", "burst-1"))
    gcp.cloud.faults.add(Fault(FaultKind.WRONG_HOST_KEY, "boot", "burst-2"))
    machine.made()
    other.made()
    vm = gcp.cloud.machines.vms[other.path]
    wait_for(lambda: vm.host_keys, "the host keys", 10)
    assert hostkeys(other, google) != list(gcp.cloud.machines.power.boot.power_on(vm).values())
    with pytest.raises(exceptions.NotFound, match="'hostkeys/' of type 'Guest Attribute'"):
        hostkeys(machine, google)
    assert gcp.cloud.faults.count() == {"no_ssh": 1, "wrong_host_key": 1}


def test_an_operation_that_never_ends_may_have_done_its_work(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.OPERATION_HANGS, "compute.instances.insert"))
    asked = machine.insert()
    wait_for(lambda: machine.get().status == "RUNNING", "the machine", 10)
    found = google.ZoneOperations.get(operation=asked.name, **machine.where)
    assert found.status == compute_v1.Operation.Status.RUNNING


def test_a_data_disk_outlives_its_machine_and_is_not_deleted_under_it(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    disk = compute_v1.Disk(name="data", size_gb=200, type_=f"zones/{ZONE}/diskTypes/pd-ssd")
    asked = google.Disks.insert_unary(disk_resource=disk, **machine.where)
    done(asked, google.ZoneOperations, **machine.where)
    boot = machine.body().disks[0]
    source = f"projects/{gcp.project.id}/zones/{ZONE}/disks/data"
    data = {"source": source, "device_name": "data0", "auto_delete": False}
    machine.made(disks=[boot, compute_v1.AttachedDisk(data)])
    with pytest.raises(exceptions.BadRequest, match="already being used by"):
        google.Disks.delete_unary(disk="data", **machine.where)
    machine.delete()
    left = [each.name for each in google.Disks.list(**machine.where)]
    assert left == ["data"]
    done(
        google.Disks.delete_unary(disk="data", **machine.where),
        google.ZoneOperations,
        **machine.where,
    )
    assert gcp.cloud.uses == {}


def test_a_machine_deleted_by_hand_is_told_in_the_audit_log(
    gcp: GcpDouble, machine: Machine
) -> None:
    machine.made()
    with gcp.cloud.lock:
        gcp.cloud.machines.delete_by_hand(machine.path, "ann@example.com")
    # It is not ready for a second deletion, or gone already.
    with pytest.raises((exceptions.BadRequest, exceptions.NotFound)):
        machine.delete()
    wait_for(machine.is_gone, "the end of the machine", 10)
    entries = [each["protoPayload"] for each in gcp.cloud.audit.written[2:]]
    assert {each["authenticationInfo"]["principalEmail"] for each in entries} >= {"ann@example.com"}
    assert entries[0]["methodName"] == "v1.compute.instances.delete"


def test_lists_lag_when_asked(gcp: GcpDouble, machine: Machine) -> None:
    gcp.cloud.resources.list_lag_s = 60.0
    machine.made()
    assert machine.get().status == "RUNNING"
    assert machine.listed() == []


async def test_who_rents_a_machine_logs_in_until_it_is_preempted(
    contained: ContainedBoot, make_gcp: Callable[..., GcpDouble]
) -> None:
    double = make_gcp(boot=contained, time_scale=200)
    machine = await asyncio.to_thread(rented, double)
    keys = {"ssh-ed25519": hostkeys(machine, machine.google)[0]}
    address = machine.get().network_interfaces[0].access_configs[0].nat_i_p
    assert await said(Address(address), keys, "nvidia-smi -L | wc -l; id -un", "ann") == "1\nann"
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await said(Address(address), {"ssh-ed25519": other_key()}, "true", "ann")
    with double.cloud.lock:
        assert double.cloud.machines.preempt(machine.path)
    with pytest.raises(ConnectionRefusedError):
        await said(Address(address), keys, "true", "ann")
    await asyncio.to_thread(wait_for, machine.is_gone, "the end of the machine", 10)
    assert not double.cloud.uses


def rented(double: GcpDouble) -> Machine:
    """A machine that runs and has published its host key."""
    google = Clients(double)
    network_of(double, google)
    machine = Machine(double, google)
    metadata = {"enable-guest-attributes": "TRUE", "ssh-keys": f"ann:{PUBLIC}"}
    items = [{"key": key, "value": value} for key, value in metadata.items()]
    machine.made(metadata={"items": items})
    wait_for(lambda: double.cloud.machines.vms[machine.path].host_keys, "the host keys", 60)
    return machine


def other_key() -> str:
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_public_key().decode().split()[1]
