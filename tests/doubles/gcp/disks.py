"""Persistent disks: made by themselves or with an instance, and not deleted while they are used."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.hardware import region_of
from tests.doubles.gcp.operations import OperationFailed, Work, nothing, repeated, start
from tests.doubles.gcp.places import IMAGE_SIZE_GB, compute_list, known_zone, link
from tests.doubles.gcp.quota import Use, exceeded
from tests.doubles.gcp.resources import check_labels, check_name, path_of, qualified

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

serves = Register()
TYPES = frozenset({"pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"})


@serves("compute.disks.insert")
def insert_disk(call: Call) -> Json:
    name = check_name(call.body.get("name"))
    check_labels(call.body.get("labels", {}))
    zone = known_zone(call)
    scope = f"projects/{call.project.id}/zones/{zone}"
    path = f"{scope}/disks/{name}"
    size_gb = int(call.body.get("sizeGb", 0) or call.get("sizeGb", "0") or IMAGE_SIZE_GB)
    kind = call.body.get("type", f"zones/{zone}/diskTypes/pd-standard")
    _check_type(kind, zone)
    if known := repeated(call):
        return known
    use = disk_use(call.project.id, zone, kind, size_gb)
    over = exceeded(call.cloud, call.project, use)
    body = {**call.body, **described(call.cloud, path, kind, size_gb)}
    call.cloud.resources.add(path, body)
    if over is None:
        call.cloud.uses[path] = use

    def end() -> None:
        if over is not None:
            raise OperationFailed.quota(over)
        body["status"] = "READY"

    undo = partial(remove, call.cloud, path)
    return start(call, Work(scope, "insert", path, call.cloud.durations.disk_s, end, undo))


@serves("compute.disks.get")
def get_disk(call: Call) -> Json:
    path = f"projects/{call.project.id}/zones/{known_zone(call)}/disks/{call['disk']}"
    return call.cloud.resources.get(path)


@serves("compute.disks.list")
def list_disks(call: Call) -> Json:
    folder = f"projects/{call.project.id}/zones/{known_zone(call)}/disks"
    return compute_list(call, "disk", folder, call.cloud.resources.listed(folder))


@serves("compute.disks.delete")
def delete_disk(call: Call) -> Json:
    scope = f"projects/{call.project.id}/zones/{known_zone(call)}"
    path = f"{scope}/disks/{call['disk']}"
    if known := repeated(call):
        return known
    disk = call.cloud.resources.usable(path)
    if disk.get("users"):
        raise RefusedError.in_use(f"disk '{path}'", path_of(disk["users"][0]))
    end = partial(remove, call.cloud, path)
    return start(call, Work(scope, "delete", path, call.cloud.durations.disk_s, end))


@serves("compute.disks.resize")
def resize_disk(call: Call) -> Json:
    scope = f"projects/{call.project.id}/zones/{known_zone(call)}"
    path = f"{scope}/disks/{call['disk']}"
    disk = call.cloud.resources.usable(path)
    if known := repeated(call):
        return known
    size_gb = int(call.body.get("sizeGb", 0))
    if size_gb < int(disk["sizeGb"]):
        why = f"It must be larger than the current size '{disk['sizeGb']}'."
        raise RefusedError.invalid_field("sizeGb", size_gb, why)
    disk["sizeGb"] = str(size_gb)
    call.cloud.uses[path] = disk_use(call.project.id, call["zone"], disk["type"], size_gb)
    return start(call, Work(scope, "resizeDisk", path, call.cloud.durations.disk_s, nothing))


def make(cloud: Cloud, path: str, asked: Json) -> Json:
    """A disk that comes with an instance, ready at once; asked: its `initializeParams`."""
    zone = path.split("/")[3]
    size_gb = int(asked.get("diskSizeGb", 0) or IMAGE_SIZE_GB)
    kind = asked.get("diskType", f"zones/{zone}/diskTypes/pd-standard")
    _check_type(kind, zone)
    body = described(cloud, path, kind, size_gb)
    if "sourceImage" in asked:
        body["sourceImage"] = link(path_of(asked["sourceImage"]))
    if "labels" in asked:
        body["labels"] = asked["labels"]
    body["status"] = "READY"
    cloud.uses[path] = disk_use(path.split("/")[1], zone, kind, size_gb)
    return cloud.resources.add(path, body)


def remove(cloud: Cloud, path: str) -> None:
    cloud.resources.remove(path)
    cloud.uses.free(path)


def described(cloud: Cloud, path: str, kind: str, size_gb: int) -> Json:
    project, zone = path.split("/")[1], path.split("/")[3]
    return {
        "kind": "compute#disk",
        "id": cloud.new_id(),
        "creationTimestamp": compute_time(cloud.clock.now()),
        "name": path.rsplit("/", 1)[1],
        "zone": link(f"projects/{project}/zones/{zone}"),
        "status": "CREATING",
        "sizeGb": str(size_gb),
        "type": link(qualified(project, kind)),
        "selfLink": link(path),
        "labelFingerprint": "42WmSpB8rSM=",
        "physicalBlockSizeBytes": "4096",
    }


def disk_use(project: str, zone: str, kind: str, size_gb: int) -> Use:
    metric = "DISKS_TOTAL_GB" if kind.endswith("pd-standard") else "SSD_TOTAL_GB"
    return Use(project, region_of(zone), {metric: float(size_gb)})


def _check_type(kind: str, zone: str) -> None:
    if kind.rsplit("/", 1)[-1] not in TYPES or f"zones/{zone}/" not in kind:
        why = "The referenced diskType resource cannot be found."
        raise RefusedError.invalid_field("resource.type", kind, why)
