"""Compute Engine's places and what they offer: the project, regions, zones, types and images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.filters import Patterns, keep
from tests.doubles.gcp.hardware import (
    GPUS,
    MACHINE_TYPES,
    ZONES,
    MachineType,
    machine_type,
    region_of,
    zone_names,
)
from tests.doubles.gcp.lists import part
from tests.doubles.gcp.quota import GLOBAL, quotas

serves = Register()
API = "https://www.googleapis.com/compute/v1"
LONG_AGO = "1969-12-31T16:00:00.000-08:00"
IMAGE_SIZE_GB = 50


def link(path: str) -> str:
    """The full link of a resource, by its path from `projects/`."""
    return f"{API}/{path}"


def compute_list(call: Call, kind: str, path: str, items: Iterable[Json]) -> Json:
    """One page of a list as Compute Engine answers it, filtered as asked."""
    kept = keep(items, call.get("filter"), Patterns())
    found, following = part(call, kept, "maxResults", 500)
    told: Json = {
        "kind": f"compute#{kind}List",
        "id": path,
        "items": found,
        "selfLink": link(path),
    }
    if following:
        told["nextPageToken"] = following
    return told


def known_zone(call: Call) -> str:
    """The zone of the path. Raises: RefusedError (404)."""
    zone = call["zone"]
    if zone not in zone_names():
        raise RefusedError.not_found(f"projects/{call.project.id}/zones/{zone}")
    return zone


def known_region(call: Call) -> str:
    region = call["region"]
    if region not in ZONES:
        raise RefusedError.not_found(f"projects/{call.project.id}/regions/{region}")
    return region


@serves("compute.projects.get")
def get_project(call: Call) -> Json:
    project = call.project
    path = f"projects/{project.id}"
    return {
        "kind": "compute#project",
        "id": project.number,
        "creationTimestamp": compute_time(project.created_at),
        "name": project.id,
        "commonInstanceMetadata": {
            "kind": "compute#metadata",
            "fingerprint": "NSoq6g4V5Hk=",
            "items": [{"key": key, "value": value} for key, value in project.metadata.items()],
        },
        "quotas": quotas(call.cloud, project, GLOBAL),
        "selfLink": link(path),
        "defaultServiceAccount": project.compute_account,
        "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
        "defaultNetworkTier": "PREMIUM",
    }


@serves("compute.regions.get")
def get_region(call: Call) -> Json:
    return _region(call, known_region(call))


@serves("compute.regions.list")
def list_regions(call: Call) -> Json:
    path = f"projects/{call.project.id}/regions"
    return compute_list(call, "region", path, [_region(call, each) for each in ZONES])


def _region(call: Call, region: str) -> Json:
    root = f"projects/{call.project.id}"
    told: Json = {
        "kind": "compute#region",
        "id": str(1000 + 10 * list(ZONES).index(region)),
        "creationTimestamp": LONG_AGO,
        "name": region,
        "description": region,
        "status": "UP",
        "zones": [link(f"{root}/zones/{zone}") for zone in zone_names(region)],
        "selfLink": link(f"{root}/regions/{region}"),
        "supportsPzs": False,
    }
    if region in call.cloud.quotas_unread:
        told["quotaStatusWarning"] = {
            "code": "QUOTA_INFO_UNAVAILABLE",
            "message": "Quota information could not be read.",
        }
    else:
        told["quotas"] = quotas(call.cloud, call.project, region)
    return told


@serves("compute.zones.get")
def get_zone(call: Call) -> Json:
    return _zone(call, known_zone(call))


@serves("compute.zones.list")
def list_zones(call: Call) -> Json:
    path = f"projects/{call.project.id}/zones"
    return compute_list(call, "zone", path, [_zone(call, each) for each in zone_names()])


def _zone(call: Call, zone: str) -> Json:
    root = f"projects/{call.project.id}"
    return {
        "kind": "compute#zone",
        "id": str(2000 + zone_names().index(zone)),
        "creationTimestamp": LONG_AGO,
        "name": zone,
        "description": zone,
        "status": "UP",
        "region": link(f"{root}/regions/{region_of(zone)}"),
        "selfLink": link(f"{root}/zones/{zone}"),
        "availableCpuPlatforms": ["Intel Skylake", "Intel Cascade Lake"],
        "supportsPzs": False,
    }


@serves("compute.machineTypes.get")
def get_machine_type(call: Call) -> Json:
    zone = known_zone(call)
    kind = machine_type(call["machineType"], zone)
    if kind is None:
        path = f"projects/{call.project.id}/zones/{zone}/machineTypes/{call['machineType']}"
        raise RefusedError.not_found(path)
    return _machine_type(call, kind, zone)


@serves("compute.machineTypes.list")
def list_machine_types(call: Call) -> Json:
    zone = known_zone(call)
    kinds = [each for name in MACHINE_TYPES if (each := machine_type(name, zone))]
    path = f"projects/{call.project.id}/zones/{zone}/machineTypes"
    found = [_machine_type(call, each, zone) for each in kinds]
    return compute_list(call, "machineType", path, found)


def _machine_type(call: Call, kind: MachineType, zone: str) -> Json:
    told: Json = {
        "kind": "compute#machineType",
        "id": str(100_000 + sum(kind.name.encode())),
        "creationTimestamp": LONG_AGO,
        "name": kind.name,
        "description": f"{kind.cpus} vCPUs, {kind.memory_mb / 1024:g} GB RAM",
        "guestCpus": kind.cpus,
        "memoryMb": kind.memory_mb,
        "imageSpaceGb": 0,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "zone": zone,
        "selfLink": link(f"projects/{call.project.id}/zones/{zone}/machineTypes/{kind.name}"),
        "isSharedCpu": kind.name in ("e2-micro", "e2-small", "e2-medium"),
        "architecture": "X86_64",
    }
    if kind.gpu is not None:
        told["accelerators"] = [
            {"guestAcceleratorType": kind.gpu, "guestAcceleratorCount": kind.gpu_count}
        ]
    return told


@serves("compute.acceleratorTypes.get")
def get_accelerator_type(call: Call) -> Json:
    zone = known_zone(call)
    gpu = GPUS.get(call["acceleratorType"])
    if gpu is None or not gpu.is_in(zone):
        path = f"projects/{call.project.id}/zones/{zone}/acceleratorTypes/{call['acceleratorType']}"
        raise RefusedError.not_found(path)
    return _accelerator_type(call, gpu.name, zone)


@serves("compute.acceleratorTypes.list")
def list_accelerator_types(call: Call) -> Json:
    zone = known_zone(call)
    found = [_accelerator_type(call, gpu.name, zone) for gpu in GPUS.values() if gpu.is_in(zone)]
    path = f"projects/{call.project.id}/zones/{zone}/acceleratorTypes"
    return compute_list(call, "acceleratorType", path, found)


@serves("compute.acceleratorTypes.aggregatedList")
def aggregate_accelerator_types(call: Call) -> Json:
    items: dict[str, Any] = {}
    for zone in zone_names():
        found = [_accelerator_type(call, each.name, zone) for each in GPUS.values()
                 if each.is_in(zone)]  # fmt: skip
        items[f"zones/{zone}"] = {"acceleratorTypes": found}
    path = f"projects/{call.project.id}/aggregated/acceleratorTypes"
    return {
        "kind": "compute#acceleratorTypeAggregatedList",
        "id": path,
        "items": items,
        "selfLink": link(path),
    }


def _accelerator_type(call: Call, name: str, zone: str) -> Json:
    root = f"projects/{call.project.id}/zones/{zone}"
    return {
        "kind": "compute#acceleratorType",
        "id": str(10_000 + list(GPUS).index(name)),
        "creationTimestamp": LONG_AGO,
        "name": name,
        "description": name.upper().replace("-", " "),
        "zone": link(root),
        "selfLink": link(f"{root}/acceleratorTypes/{name}"),
        "maximumCardsPerInstance": max(GPUS[name].counts, default=16),
    }


@serves("compute.images.getFromFamily")
def get_image_from_family(call: Call) -> Json:
    """The newest image of a family; families are retired in time, and then there is none."""
    family = call["family"]
    if family not in call.cloud.image_families.get(call.project.id, ()):
        raise RefusedError.not_found(f"projects/{call.project.id}/global/images/family/{family}")
    return _image(call.project.id, f"{family}-v20261015", family)


@serves("compute.images.get")
def get_image(call: Call) -> Json:
    name = call["image"]
    family = name.rpartition("-v")[0]
    if family not in call.cloud.image_families.get(call.project.id, ()):
        raise RefusedError.not_found(f"projects/{call.project.id}/global/images/{name}")
    return _image(call.project.id, name, family)


def _image(project: str, name: str, family: str) -> Json:
    return {
        "kind": "compute#image",
        "id": str(10**18 + sum(name.encode())),
        "creationTimestamp": "2026-10-15T02:11:07.120-07:00",
        "name": name,
        "family": family,
        "sourceType": "RAW",
        "status": "READY",
        "archiveSizeBytes": "18446744073",
        "diskSizeGb": str(IMAGE_SIZE_GB),
        "architecture": "X86_64",
        "selfLink": link(f"projects/{project}/global/images/{name}"),
    }
