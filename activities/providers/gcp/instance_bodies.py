"""The body of a request that creates an instance, and the observation of an instance."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from activities.providers.base import RequestRefused
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.names import LABEL, NODE_TAG, OFFER_LABEL, subnetwork_name
from activities.providers.gcp.startup import startup_script
from activities.settings import settings
from workflows.contracts.billing import disk_microcredits_per_hour
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.rules.catalogue.clouds import CloudCatalogue, MachineType
from workflows.rules.catalogue.providers import traits_of

USER = "root"
_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9_-]")
_STATES = {
    "PROVISIONING": MachineState.MAKING,
    "STAGING": MachineState.MAKING,
    "PENDING": MachineState.MAKING,
    "RUNNING": MachineState.RUNNING,
    "REPAIRING": MachineState.RUNNING,
    "STOPPING": MachineState.ENDING,
    "PENDING_STOP": MachineState.ENDING,
    "SUSPENDING": MachineState.ENDING,
    "DEPROVISIONING": MachineState.ENDING,
    "SUSPENDED": MachineState.STOPPED,
    "STOPPED": MachineState.STOPPED,
    "TERMINATED": MachineState.STOPPED,
}
LONGEST_RUN_S = traits_of(ProviderKind.GCP).lifetime_limit_s
"""Google refuses a longer limit: only its lease terminates a machine that is to run for longer.
Source: https://cloud.google.com/compute/docs/instances/limit-vm-runtime."""
SHORTEST_RUN_S = 30


def instance_body(
    name: str,
    offer: MachineOffer,
    spec: MachineSpec,
    *,
    owner: tuple[str, str],
    public_key: str,
) -> Any:
    """The body of an insert. owner: provider id and project id.

    The body has no service account, so programs on the machine have no rights in the project.
    Raises: RequestRefused, when the catalogue lacks the machine type with these GPUs.
    """
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    provider_id, project_id = owner
    zone, region = offer.zone, offer.zone.rpartition("-")[0]
    machine = machine_of(offer)
    if machine is None and offer.gpu_count:
        gpus = f"{offer.gpu_count}×{offer.gpu_type}"
        raise RequestRefused(f"{name}: no {offer.machine_type} with {gpus} is in the catalogue")
    body = compute_v1.Instance(
        name=name,
        machine_type=f"zones/{zone}/machineTypes/{offer.machine_type}",
        scheduling=_scheduling(offer, spec),
        disks=[_boot_disk(offer, spec), *_local_ssds(offer)],
        network_interfaces=[
            compute_v1.NetworkInterface(
                subnetwork=f"regions/{region}/subnetworks/{subnetwork_name(provider_id, region)}",
                access_configs=[
                    compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")
                ],
            )
        ],
        metadata=_metadata(offer, startup_script(offer, spec, public_key), public_key),
        labels={**_labels(spec), LABEL: provider_id, OFFER_LABEL: offer.label},
        tags=compute_v1.Tags(items=[NODE_TAG]),
    )
    if machine is not None and machine.attaches:
        gpu = gcp_catalogue().gpu(machine.gpu_type or "")
        accelerator = gpu.accelerators[0] if gpu else ""
        body.guest_accelerators = [
            compute_v1.AcceleratorConfig(
                accelerator_type=f"projects/{project_id}/zones/{zone}/acceleratorTypes/{accelerator}",
                accelerator_count=offer.gpu_count,
            )
        ]
    return body


def machine_of(offer: MachineOffer) -> MachineType | None:
    """The catalogue's machine type of an offer; None when the catalogue lacks it."""
    return next(
        (
            machine
            for machine in gcp_catalogue().machines
            if (machine.name, machine.gpu_type, machine.gpu_count)
            == (offer.machine_type, offer.gpu_type, offer.gpu_count)
        ),
        None,
    )


def _scheduling(offer: MachineOffer, spec: MachineSpec) -> Any:
    """The scheduling, by which Google itself deletes the machine at the end of its lifetime.

    Google deletes and does not stop it, because a stopped machine still costs for its disks. An
    on-demand machine without GPUs survives its host: Google migrates or restarts the machine.
    """
    from google.cloud import compute_v1  # noqa: PLC0415

    stays = not offer.spot and not offer.gpu_count
    scheduling = compute_v1.Scheduling(
        on_host_maintenance="MIGRATE" if stays else "TERMINATE",
        automatic_restart=stays,
        provisioning_model="SPOT" if offer.spot else "STANDARD",
    )
    is_limited = spec.lifetime_s <= LONGEST_RUN_S
    if is_limited:
        seconds = max(SHORTEST_RUN_S, spec.lifetime_s)
        scheduling.max_run_duration = compute_v1.Duration(seconds=seconds)
    if is_limited or offer.spot:
        scheduling.instance_termination_action = "DELETE"
    return scheduling


def _local_ssds(offer: MachineOffer) -> list[Any]:
    """As many local SSDs as the price of the offer includes."""
    from google.cloud import compute_v1  # noqa: PLC0415

    ssd = compute_v1.AttachedDisk(
        type_="SCRATCH",
        interface="NVME",
        auto_delete=True,
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            disk_type=f"zones/{offer.zone}/diskTypes/local-ssd"
        ),
    )
    return [ssd] * gcp_catalogue().ssd_count(offer.gpu_type, offer.gpu_count)


def _boot_disk(offer: MachineOffer, spec: MachineSpec) -> Any:
    from google.cloud import compute_v1  # noqa: PLC0415

    image = settings().gcp_image if offer.gpu_count else settings().gcp_plain_image
    return compute_v1.AttachedDisk(
        boot=True,
        auto_delete=True,
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image=image,
            disk_size_gb=spec.disk_size_gb,
            disk_type=f"zones/{offer.zone}/diskTypes/pd-balanced",
        ),
    )


def _metadata(offer: MachineOffer, startup: str, public_key: str) -> Any:
    """The metadata: the platform's public key, and that the machine gives Google its host keys.

    The metadata has no secret.
    """
    from google.cloud import compute_v1  # noqa: PLC0415

    items = {
        "ssh-keys": f"{USER}:{public_key}",
        "enable-oslogin": "FALSE",
        "enable-guest-attributes": "TRUE",
        "startup-script": startup,
    }
    if offer.gpu_count:
        items["install-nvidia-driver"] = "True"
    return compute_v1.Metadata(
        items=[compute_v1.Items(key=key, value=value) for key, value in items.items()]
    )


def _labels(spec: MachineSpec) -> dict[str, str]:
    """The tags as Google allows labels: small letters, digits, `-` and `_`, at most 63."""
    return {
        _NOT_IN_A_LABEL.sub("-", key.lower())[:63]: _NOT_IN_A_LABEL.sub("-", value.lower())[:63]
        for key, value in spec.tags.items()
    }


def shown(instance: Any, zone: str, catalogue: CloudCatalogue) -> MachineObservation:
    """The observation of an instance, without its host key, which is another request.

    catalogue: whose prices the observation has.
    """
    interfaces = list(instance.network_interfaces)[:1]
    external = (access.nat_i_p for each in interfaces for access in each.access_configs)
    state = _STATES.get(instance.status, MachineState.MAKING)
    return MachineObservation(
        state=state,
        zone=zone,
        provider_machine_id=str(instance.id),
        host=next((address for address in external if address), None),
        internal_host=next((each.network_i_p for each in interfaces if each.network_i_p), None),
        user=USER,
        microcredits_per_hour=_price(instance, zone, catalogue),
        began_at=_instant(instance.last_start_timestamp),
        ended_at=_instant(instance.last_stop_timestamp) if state is MachineState.STOPPED else None,
        offer_label=instance.labels.get(OFFER_LABEL, ""),
        reason=instance.status_message or "",
    )


def _instant(text: str) -> datetime | None:
    """The instant; None when it has not come yet. A machine costs nothing while it is created."""
    return datetime.fromisoformat(text) if text else None


def _price(instance: Any, zone: str, catalogue: CloudCatalogue) -> int | None:
    """The catalogue's price of the machine as it was created, with its boot disk; None: unknown."""
    name = instance.machine_type.rpartition("/")[2]
    attached = {
        each.accelerator_type.rpartition("/")[2]: each.accelerator_count
        for each in instance.guest_accelerators
    }
    region = zone.rpartition("-")[0]
    machine = next((one for one in catalogue.machines if _is_it(one, name, attached)), None)
    price = None if machine is None else catalogue.price(machine, region)
    if price is None:
        return None
    size_gb = sum(disk.disk_size_gb for disk in instance.disks if disk.type_ != "SCRATCH")
    per_gb_month = catalogue.boot_disk_microcredits_per_gb_month(region)
    disk = disk_microcredits_per_hour(size_gb, per_gb_month)
    if instance.scheduling.provisioning_model == "SPOT":
        return price.spot_microcredits_per_hour + disk
    return price.on_demand_microcredits_per_hour + disk


def _is_it(machine: MachineType, name: str, attached: Mapping[str, int]) -> bool:
    """Whether a machine of this type with these accelerators is this machine of the catalogue.

    Google lists accelerators also for machine types that include them.
    """
    if machine.name != name or (machine.attaches and not attached):
        return False
    gpu = gcp_catalogue().gpu(machine.gpu_type or "")
    counts = [attached.get(accelerator) for accelerator in (gpu.accelerators if gpu else ())]
    return not attached or machine.gpu_count in counts
