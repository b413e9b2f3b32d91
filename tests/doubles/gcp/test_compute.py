"""Compute Engine, asked by Google's own client library: one module, as importing it takes 1.3 s."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
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
