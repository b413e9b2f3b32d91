"""What is asked for with an instance: checked as Compute Engine checks it, and written out in full.

Sources: clouds' machine facts for GPUs and local SSDs; the messages are those of the real API.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from tests.doubles.gcp.calls import Call
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.hardware import GPUS, MachineType, machine_type, region_of
from tests.doubles.gcp.places import IMAGE_SIZE_GB, link
from tests.doubles.gcp.quota import Use, limit, machine_use
from tests.doubles.gcp.resources import check_labels, check_name, path_of, qualified
from tests.doubles.gcp.stock import Gpus

SSD_GB = 375
SHORTEST_RUN_S, LONGEST_RUN_S = 30, 120 * 24 * 3600
_MOST_CPUS = {
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 96},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
    "nvidia-tesla-t4": {1: 48, 2: 48, 4: 96},
}
_SSD_COUNTS: dict[str, tuple[int, ...]] = {
    "n1": (*range(9), 16, 24), "custom": (*range(9), 16, 24), "n2": (0, 1, 2, 4, 8, 16, 24),
    "a2": (0, 1, 2, 4, 8), "g2": (0, 1, 2, 4, 8), "e2": (0,), "a3": (0,), "a4": (0,),
}  # fmt: skip
_IMAGE = re.compile(r"projects/([^/]+)/global/images/(family/)?([^/]+)")


@dataclass(frozen=True)
class Specification:
    """A request that can be fulfilled, if there is stock and quota."""

    name: str
    zone: str
    machine: MachineType
    gpus: Gpus
    spot: bool
    disks: tuple[Json, ...]
    interfaces: tuple[Json, ...]
    use: Use

    @property
    def attachment(self) -> str:
        return ",".join(f"{name}:{count}" for name, count in self.gpus)


def specify(call: Call, zone: str) -> Specification:
    """What the body asks for. Raises: RefusedError."""
    body, project = call.body, call.project
    name = check_name(body.get("name"))
    check_labels(body.get("labels", {}))
    _check_metadata(body.get("metadata", {}))
    machine = _machine(call, zone)
    gpus = _gpus(body, machine, zone)
    spot = _scheduling(body, machine, bool(gpus))
    disks = _disks(call, machine)
    _check_accounts(call)
    region = region_of(zone)
    cpu_spot = limit(project, region, "PREEMPTIBLE_CPUS") > 0
    metrics, of_project = machine_use(machine, gpus, spot=spot, cpu_spot=cpu_spot)
    ssds = sum(disk.get("type") == "SCRATCH" for disk in disks)
    if ssds:
        metrics["PREEMPTIBLE_LOCAL_SSD_GB" if spot else "LOCAL_SSD_TOTAL_GB"] = float(ssds * SSD_GB)
    interfaces = _interfaces(call, zone)
    if any(interface.get("accessConfigs") for interface in interfaces):
        metrics["IN_USE_ADDRESSES"] = 1.0
    use = Use(project.id, region, metrics, of_project)
    return Specification(name, zone, machine, gpus, spot, disks, interfaces, use)


def fingerprint(value: Any) -> str:
    """Changes when the value does."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


def scheduling_of(body: Json, *, spot: bool) -> Json:
    """`scheduling` with what Compute Engine fills in."""
    return {
        "onHostMaintenance": "TERMINATE" if spot else "MIGRATE",
        "automaticRestart": not spot,
        "preemptible": spot,
        "provisioningModel": "SPOT" if spot else "STANDARD",
        **body.get("scheduling", {}),
    }


def _machine(call: Call, zone: str) -> MachineType:
    given = call.body.get("machineType", "")
    found = re.fullmatch(r"(?:.*/)?zones/([^/]+)/machineTypes/([^/]+)", given)
    if found is None or found[1] != zone:
        why = "The URL is malformed." if found is None else "It is of another zone."
        raise RefusedError.invalid_field("resource.machineType", given, why)
    machine = machine_type(found[2], zone)
    if machine is None:
        why = f"Machine type with name '{found[2]}' does not exist in zone '{zone}'."
        raise RefusedError.invalid_field("resource.machineType", given, why)
    return machine


def _gpus(body: Json, machine: MachineType, zone: str) -> Gpus:
    asked = body.get("guestAccelerators", [])
    found: list[tuple[str, int]] = []
    if machine.gpu is not None:
        found.append((machine.gpu, machine.gpu_count))
    for each in asked:
        name, count = each.get("acceleratorType", "").rsplit("/", 1)[-1], each["acceleratorCount"]
        if machine.gpu is not None and (name, count) == found[0]:
            continue
        gpu = GPUS.get(name)
        if gpu is None or not gpu.is_in(zone):
            why = "The referenced acceleratorType resource cannot be found."
            field = "resource.guestAccelerators[0].acceleratorType"
            raise RefusedError.invalid_field(field, each.get("acceleratorType"), why)
        if machine.family not in ("n1", "custom") or count not in gpu.counts:
            message = f"{machine.name} cannot have {count} accelerators of type {name}."
            raise RefusedError(400, "invalid", f"[{machine.name}, {name}] features are not "
                               f"compatible for creating instance. {message}")  # fmt: skip
        if machine.cpus > _MOST_CPUS[name][count]:
            raise RefusedError.invalid(
                f"Number of CPUs {machine.cpus} is too large for {count} {name} accelerators."
            )
        found.append((name, count))
    return tuple(found)


def _scheduling(body: Json, machine: MachineType, has_gpus: bool) -> bool:
    """Whether it is a spot VM."""
    given = body.get("scheduling", {})
    spot = given.get("provisioningModel") == "SPOT" or bool(given.get("preemptible"))
    full = scheduling_of(body, spot=spot)
    if (has_gpus or spot) and full["onHostMaintenance"] != "TERMINATE":
        raise RefusedError.invalid(
            "Instances with guest accelerators do not support live migration."
            if has_gpus
            else "Scheduling must have onHostMaintenance TERMINATE when it is preemptible."
        )
    if spot and full["automaticRestart"]:
        raise RefusedError.invalid(
            "Scheduling must have preemptible be false when AutomaticRestart is true."
        )
    if machine.spot_only and not spot:
        raise RefusedError.invalid(
            f"{machine.name} is only available with provisioning models SPOT, FLEX_START and "
            "RESERVATION_BOUND."
        )
    lasts = given.get("maxRunDuration", {}).get("seconds")
    if lasts is not None and not SHORTEST_RUN_S <= int(lasts) <= LONGEST_RUN_S:
        why = f"It must be from {SHORTEST_RUN_S} to {LONGEST_RUN_S} seconds."
        raise RefusedError.invalid_field("resource.scheduling.maxRunDuration.seconds", lasts, why)
    if given.get("instanceTerminationAction") and not spot and lasts is None:
        raise RefusedError.invalid(
            "Instance termination action is only supported with SPOT or a limited run time."
        )
    return spot


def _disks(call: Call, machine: MachineType) -> tuple[Json, ...]:
    disks = call.body.get("disks", [])
    boots = [disk for disk in disks if disk.get("boot")]
    if len(boots) != 1:
        field, why = "resource.disks", f"{len(boots)} boot disks, where one is needed."
        raise RefusedError.invalid_field(field, "", why)
    ssds = sum(disk.get("type") == "SCRATCH" for disk in disks)
    allowed = (0,) if machine.bundled_ssd_gb else _SSD_COUNTS.get(machine.family, (0,))
    if ssds not in allowed:
        raise RefusedError.invalid(
            f"Number of local SSDs {ssds} is not supported by {machine.name}: "
            f"{', '.join(map(str, allowed))}."
        )
    return tuple(_disk(call, disk, number) for number, disk in enumerate(disks))


def _disk(call: Call, disk: Json, number: int) -> Json:
    """The entry as the instance will tell it; the disk itself is made later."""
    field = f"resource.disks[{number}]"
    asked = disk.get("initializeParams", {})
    if ("source" in disk) == bool(asked):
        why = "One of source and initializeParams is needed."
        raise RefusedError.invalid_field(field, "", why)
    if "source" in disk:
        path = qualified(call.project.id, disk["source"])
        found = call.cloud.resources.find(path)
        if found is None:
            why = "The referenced disk resource cannot be found."
            raise RefusedError.invalid_field(f"{field}.source", disk["source"], why)
        call.cloud.resources.usable(path)
        if found.get("users"):
            raise RefusedError.in_use(f"disk '{path}'", path_of(found["users"][0]))
        return {**disk, "source": link(path)}
    if disk.get("type") == "SCRATCH":
        if not asked.get("diskType", "").endswith("/local-ssd"):
            why = "A SCRATCH disk is a local-ssd."
            raise RefusedError.invalid_field(f"{field}.initializeParams.diskType", "", why)
        return disk
    image = asked.get("sourceImage", "")
    if disk.get("boot") or image:
        _check_image(call, image, f"{field}.initializeParams.sourceImage")
        if int(asked.get("diskSizeGb", IMAGE_SIZE_GB)) < IMAGE_SIZE_GB:
            raise RefusedError.invalid_field(
                f"{field}.initializeParams.diskSizeGb",
                asked["diskSizeGb"],
                f"Requested disk size cannot be smaller than the image size ({IMAGE_SIZE_GB} GB)",
            )
    return disk


def _check_image(call: Call, image: str, field: str) -> None:
    found = _IMAGE.fullmatch(path_of(image))
    families = call.cloud.image_families.get(found[1], ()) if found else ()
    family = found[3] if found and found[2] else (found[3].rpartition("-v")[0] if found else "")
    if family not in families:
        why = "The referenced image resource cannot be found."
        raise RefusedError.invalid_field(field, image, why)


def _interfaces(call: Call, zone: str) -> tuple[Json, ...]:
    interfaces = call.body.get("networkInterfaces", [])
    if not interfaces:
        why = "At least one network interface is required."
        raise RefusedError.invalid_field("resource.networkInterfaces", "", why)
    return tuple(_interface(call, each, number, zone) for number, each in enumerate(interfaces))


def _interface(call: Call, interface: Json, number: int, zone: str) -> Json:
    field = f"resource.networkInterfaces[{number}].subnetwork"
    given = interface.get("subnetwork", "")
    path = qualified(call.project.id, given)
    subnetwork = call.cloud.resources.find(path) if given else None
    if subnetwork is None:
        why = "The referenced subnetwork resource cannot be found."
        raise RefusedError.invalid_field(field, given, why)
    if path.split("/")[3] != region_of(zone):
        raise RefusedError.invalid_field(field, given, "It is in another region than the zone.")
    call.cloud.resources.usable(path)
    configs = [
        {
            "kind": "compute#accessConfig",
            "name": "External NAT",
            "type": "ONE_TO_ONE_NAT",
            "networkTier": "PREMIUM",
            **config,
        }
        for config in interface.get("accessConfigs", [])
    ]
    told = {
        **interface,
        "kind": "compute#networkInterface",
        "name": f"nic{number}",
        "network": subnetwork["network"],
        "subnetwork": link(path),
        "fingerprint": fingerprint(path),
        "stackType": "IPV4_ONLY",
    }
    if configs:
        told["accessConfigs"] = configs
    return told


def _check_metadata(metadata: Json) -> None:
    keys = [item.get("key", "") for item in metadata.get("items", [])]
    for key in keys:
        if not re.fullmatch(r"[\w-]{1,128}", key) or keys.count(key) > 1:
            why = "Metadata keys are unique and of letters, digits, '-' and '_'."
            raise RefusedError.invalid_field("resource.metadata.items[0].key", key, why)


def _check_accounts(call: Call) -> None:
    for account in call.body.get("serviceAccounts", []):
        email = account.get("email", "default")
        email = call.project.compute_account if email == "default" else email
        may = call.project.allows(call.principal, "iam.serviceAccounts.actAs", account=email)
        if email not in call.cloud.credentials.accounts or not may:
            raise RefusedError(
                400,
                "SERVICE_ACCOUNT_ACCESS_DENIED",
                f"The user does not have access to service account '{email}'.  User: "
                f"'{call.principal}'.  Ask a project owner to grant you the "
                "iam.serviceAccountUser role on the service account",
            )
