"""Compute Engine, asked by Google's own client library: one module, as importing it takes 1.3 s."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1
from google.oauth2 import service_account

from tests.activities.waiting import wait_for
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.faults import Fault, FaultKind

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class Clients:
    """Google's clients with a key of the double's, each made when it is first asked for."""

    def __init__(self, double: GcpDouble) -> None:
        key = service_account_key(double)
        self._credentials = service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
            key, scopes=SCOPES
        )
        self._options = {"api_endpoint": double.url}

    def __getattr__(self, name: str) -> Any:
        kind = getattr(compute_v1, f"{name}Client")
        return kind(credentials=self._credentials, client_options=self._options)


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


def network_of(double: GcpDouble, google: Clients, name: str = "net") -> str:
    """A network with a subnetwork in us-west1; the subnetwork's path."""
    project = double.project.id
    done(
        google.Networks.insert_unary(
            project=project,
            network_resource=compute_v1.Network(name=name, auto_create_subnetworks=False),
        ),
        google.GlobalOperations,
        project=project,
    )
    wanted = compute_v1.Subnetwork(
        name=name, network=f"projects/{project}/global/networks/{name}", ip_cidr_range="10.7.0.0/16"
    )
    asked = google.Subnetworks.insert_unary(
        project=project, region="us-west1", subnetwork_resource=wanted
    )
    done(asked, google.RegionOperations, project=project, region="us-west1")
    return f"projects/{project}/regions/us-west1/subnetworks/{name}"


def done(operation: Any, client: Any, **where: str) -> Any:
    """The operation as it has ended."""
    assert operation.status != compute_v1.Operation.Status.DONE
    ended = client.wait(operation=operation.name, **where)
    assert ended.status == compute_v1.Operation.Status.DONE
    return ended


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


ZONE = "us-west1-a"
IMAGES = "projects/deeplearning-platform-release/global/images/family"


class Machine:
    """A VM with a T4 in us-west1-a, as the product asks for one, by Google's client."""

    def __init__(self, double: GcpDouble, google: Clients, name: str = "burst-1") -> None:
        self.name = name
        self.where = {"project": double.project.id, "zone": ZONE}
        self.path = f"projects/{double.project.id}/zones/{ZONE}/instances/{name}"
        self._google = google
        self._double = double

    def body(self, **settings: Any) -> compute_v1.Instance:
        project = self.where["project"]
        wanted = {
            "name": self.name,
            "machine_type": f"zones/{ZONE}/machineTypes/n1-standard-8",
            "guest_accelerators": [
                {
                    "accelerator_type": f"projects/{project}/zones/{ZONE}/acceleratorTypes/"
                    "nvidia-tesla-t4",
                    "accelerator_count": 1,
                }
            ],
            "scheduling": {
                "on_host_maintenance": "TERMINATE",
                "automatic_restart": False,
                "provisioning_model": "SPOT",
                "instance_termination_action": "DELETE",
                "max_run_duration": {"seconds": 86400},
            },
            "disks": [
                {
                    "boot": True,
                    "auto_delete": True,
                    "initialize_params": {
                        "source_image": f"{IMAGES}/common-cu129-ubuntu-2404-nvidia-580",
                        "disk_size_gb": 100,
                        "disk_type": f"zones/{ZONE}/diskTypes/pd-balanced",
                    },
                }
            ],
            "network_interfaces": [
                {
                    "subnetwork": "regions/us-west1/subnetworks/net",
                    "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
                }
            ],
            "metadata": {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]},
            "labels": {"baseload-lease": "lease-1"},
        }
        return compute_v1.Instance({**wanted, **settings})

    def insert(self, request_id: str | None = None, **settings: Any) -> Any:
        asked = {**self.where, "instance_resource": self.body(**settings)}
        if request_id is not None:
            asked["request_id"] = request_id
        return self._google.Instances.insert_unary(request=asked)

    def made(self, **settings: Any) -> Any:
        """The operation that made it, DONE, well or not."""
        return done(self.insert(**settings), self._google.ZoneOperations, **self.where)

    def delete(self) -> Any:
        asked = self._google.Instances.delete_unary(instance=self.name, **self.where)
        return done(asked, self._google.ZoneOperations, **self.where)

    def get(self) -> Any:
        return self._google.Instances.get(instance=self.name, **self.where)

    def listed(self) -> list[str]:
        pages = self._google.Instances.aggregated_list(project=self.where["project"])
        return [each.name for _, scope in pages for each in scope.instances]

    def is_gone(self) -> bool:
        return self.path not in self._double.cloud.machines.vms


@pytest.fixture
def machine(gcp: GcpDouble, google: Clients) -> Machine:
    network_of(gcp, google)
    return Machine(gcp, google)


def test_a_machine_is_charged_from_running_until_it_is_gone(
    gcp: GcpDouble, google: Clients, machine: Machine
) -> None:
    asked = machine.insert()
    assert machine.get().status == "PROVISIONING"
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


def test_lists_lag_when_asked(gcp: GcpDouble, machine: Machine) -> None:
    gcp.cloud.resources.list_lag_s = 60.0
    machine.made()
    assert machine.get().status == "RUNNING"
    assert machine.listed() == []
