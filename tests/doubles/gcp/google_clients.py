"""Google's own client of Compute Engine as tests use it: with a key of a double, on the double."""

from __future__ import annotations

from typing import Any

from google.cloud import compute_v1
from google.oauth2 import service_account

from tests.doubles.gcp.double import GcpDouble, service_account_key

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


ZONE = "us-west1-a"
IMAGES = "projects/deeplearning-platform-release/global/images/family"


class Machine:
    """A VM with a T4 in us-west1-a, as the product asks for one, by Google's client."""

    def __init__(self, double: GcpDouble, google: Clients, name: str = "burst-1") -> None:
        self.name = name
        self.where = {"project": double.project.id, "zone": ZONE}
        self.path = f"projects/{double.project.id}/zones/{ZONE}/instances/{name}"
        self.google = google
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
        return self.google.Instances.insert_unary(request=asked)

    def made(self, **settings: Any) -> Any:
        """The operation that made it, DONE, well or not."""
        return done(self.insert(**settings), self.google.ZoneOperations, **self.where)

    def delete(self) -> Any:
        asked = self.google.Instances.delete_unary(instance=self.name, **self.where)
        return done(asked, self.google.ZoneOperations, **self.where)

    def get(self) -> Any:
        return self.google.Instances.get(instance=self.name, **self.where)

    def listed(self) -> list[str]:
        pages = self.google.Instances.aggregated_list(project=self.where["project"])
        return [each.name for _, scope in pages for each in scope.instances]

    def is_gone(self) -> bool:
        return self.path not in self._double.cloud.machines.vms


def hostkeys(machine: Machine, google: Clients) -> list[str]:
    request = compute_v1.GetGuestAttributesInstanceRequest(
        instance=machine.name, query_path="hostkeys/", **machine.where
    )
    told = google.Instances.get_guest_attributes(request=request)
    return [each.value for each in told.query_value.items]
