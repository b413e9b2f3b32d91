"""What Google tells of quotas, and what it does not: the use of newer GPUs is counted."""

import pytest
from google.cloud import compute_v1

from activities.providers.gcp.errors import GoogleRefusedError
from activities.providers.gcp.network import make_network
from activities.providers.gcp.quotas import read_quotas
from activities.providers.gcp.session import GoogleSession
from activities.providers.gcp.subnetworks import make_subnetwork
from activities.settings import settings
from tests.activities.providers.gcp.keys import session_with
from tests.doubles.gcp.double import GcpDouble
from workflows.contracts.quotas import Quota
from workflows.rules.catalogue.quotas import family_metric

OURS, REGION, ZONE = "prv-01abc", "us-central1", "us-central1-a"
H100 = family_metric("NVIDIA_H100")


def found(session: GoogleSession, region: str = REGION) -> dict[str, Quota]:
    return {quota.metric: quota for quota in read_quotas(session, region)}


def test_limits_and_use_of_the_region_the_project_and_the_families(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.project.limits[REGION] = {"NVIDIA_T4_GPUS": 3.0, "family:NVIDIA_H100": 16.0}
    quotas = found(google)
    t4 = quotas["NVIDIA_T4_GPUS"]
    assert (t4.limit, t4.used, t4.place) == (3, 0, REGION)
    assert quotas["GPUS_ALL_REGIONS"].place == "all regions"
    assert (quotas[H100].limit, quotas[H100].used) == (16, 0)


def test_machines_that_run_are_in_the_use_of_their_gpus_family(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    make_network(google, OURS)
    run_machine(gcp, google, "a3-highgpu-2g")
    run_machine(gcp, google, "n1-standard-8", accelerator="nvidia-tesla-t4")
    quotas = found(google)
    assert quotas[H100].used == 2
    assert quotas["GPUS_ALL_REGIONS"].used == 3
    assert found(google, "europe-west4")[H100].used == 0


def run_machine(
    gcp: GcpDouble, google: GoogleSession, machine_type: str, accelerator: str = ""
) -> None:
    place = f"projects/{gcp.project.id}/zones/{ZONE}"
    kind = f"{place}/acceleratorTypes/{accelerator}"
    more = [compute_v1.AcceleratorConfig(accelerator_type=kind, accelerator_count=1)]
    scheduling = {"on_host_maintenance": "TERMINATE", "provisioning_model": "SPOT"}
    disk = {"boot": True, "initialize_params": {"source_image": settings().gcp_image}}
    wanted = compute_v1.Instance(
        name=f"m-{machine_type}",
        machine_type=f"zones/{ZONE}/machineTypes/{machine_type}",
        scheduling=scheduling,
        disks=[disk],
        network_interfaces=[{"subnetwork": make_subnetwork(google, OURS, REGION)}],
        guest_accelerators=more if accelerator else [],
    )
    google.compute(compute_v1.InstancesClient).insert_unary(
        project=gcp.project.id, zone=ZONE, instance_resource=wanted
    )


def test_without_leave_to_look_there_is_a_refusal_and_not_a_zero(gcp: GcpDouble) -> None:
    session = session_with(gcp, account="weak", roles=("roles/browser",))
    with pytest.raises(GoogleRefusedError, match="quotas of us-central1"):
        read_quotas(session, REGION)
