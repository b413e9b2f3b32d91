"""The methods of Compute Engine's instances."""

from __future__ import annotations

from typing import Any

from tests.doubles.gcp.audit import Activity
from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.filters import Patterns, keep
from tests.doubles.gcp.hardware import zone_names
from tests.doubles.gcp.lists import part
from tests.doubles.gcp.operations import Work, repeated, start
from tests.doubles.gcp.places import compute_list, known_zone, link
from tests.doubles.gcp.resources import check_labels, path_of, qualified
from tests.doubles.gcp.specification import Specification, fingerprint, scheduling_of, specify

serves = Register()
_MOST_OF_A_SCOPE = 500


@serves("compute.instances.insert")
def insert_instance(call: Call) -> Json:
    zone = known_zone(call)
    if known := repeated(call):
        return known
    wanted = specify(call, zone)
    return call.cloud.machines.insert(call, wanted, _described(call, wanted))


def _described(call: Call, wanted: Specification) -> Json:
    """The instance resource with all that Compute Engine fills in."""
    asked, root = call.body, f"projects/{call.project.id}/zones/{wanted.zone}"
    gpus = [
        {
            "acceleratorType": link(f"{root}/acceleratorTypes/{name}"),
            "acceleratorCount": count,
        }
        for name, count in wanted.gpus
    ]
    metadata = asked.get("metadata", {})
    return {
        **{name: value for name, value in asked.items() if name != "serviceAccounts"},
        **({"serviceAccounts": asked["serviceAccounts"]} if asked.get("serviceAccounts") else {}),
        "kind": "compute#instance",
        "id": call.cloud.new_id(),
        "creationTimestamp": compute_time(call.cloud.clock.now()),
        "name": wanted.name,
        "status": "PROVISIONING",
        "zone": link(root),
        "selfLink": link(f"{root}/instances/{wanted.name}"),
        "machineType": link(f"{root}/machineTypes/{wanted.machine.name}"),
        "cpuPlatform": "Unknown CPU Platform",
        "scheduling": scheduling_of(asked, spot=wanted.spot),
        "networkInterfaces": list(wanted.interfaces),
        "disks": [],
        "metadata": {
            **metadata,
            "kind": "compute#metadata",
            "fingerprint": fingerprint(metadata.get("items", [])),
        },
        "tags": {**asked.get("tags", {}), "fingerprint": fingerprint(asked.get("tags", {}))},
        "labelFingerprint": fingerprint(asked.get("labels", {})),
        "deletionProtection": asked.get("deletionProtection", False),
        "startRestricted": False,
        **({"guestAccelerators": gpus} if gpus else {}),
    }


@serves("compute.instances.get")
def get_instance(call: Call) -> Json:
    return call.cloud.resources.get(_path(call))


@serves("compute.instances.list")
def list_instances(call: Call) -> Json:
    folder = f"projects/{call.project.id}/zones/{known_zone(call)}/instances"
    return compute_list(call, "instance", folder, call.cloud.resources.listed(folder))


@serves("compute.instances.aggregatedList")
def aggregate_instances(call: Call) -> Json:
    """Every zone is told, with a warning where there is nothing on this page."""
    root = f"projects/{call.project.id}"
    found = [
        instance
        for zone in zone_names()
        for instance in call.cloud.resources.listed(f"{root}/zones/{zone}/instances")
    ]
    kept = keep(found, call.get("filter"), Patterns())
    shown, following = part(call, kept, "maxResults", _MOST_OF_A_SCOPE)
    items: dict[str, Any] = {f"zones/{zone}": _nothing(zone) for zone in zone_names()}
    for instance in shown:
        scope = items[f"zones/{instance['zone'].rsplit('/', 1)[1]}"]
        scope.pop("warning", None)
        scope.setdefault("instances", []).append(instance)
    path = f"{root}/aggregated/instances"
    told: Json = {
        "kind": "compute#instanceAggregatedList",
        "id": path,
        "items": items,
        "selfLink": link(path),
    }
    if following:
        told["nextPageToken"] = following
    return told


def _nothing(zone: str) -> Json:
    return {
        "warning": {
            "code": "NO_RESULTS_ON_PAGE",
            "message": f"There are no results for scope 'zones/{zone}' on this page.",
            "data": [{"key": "scope", "value": f"zones/{zone}"}],
        }
    }


@serves("compute.instances.delete")
def delete_instance(call: Call) -> Json:
    path = _path(call)
    try:
        return call.cloud.machines.delete(call, path)
    except RefusedError as refused:
        method = "v1.compute.instances.delete"
        activity = Activity(call.project.id, method, path, call.principal)
        call.cloud.audit.refused(activity, refused.message)
        raise


@serves("compute.instances.stop")
def stop_instance(call: Call) -> Json:
    return call.cloud.machines.stop(call, _path(call))


@serves("compute.instances.start")
def start_instance(call: Call) -> Json:
    return call.cloud.machines.start(call, _path(call))


@serves("compute.instances.reset")
def reset_instance(call: Call) -> Json:
    return call.cloud.machines.reset(call, _path(call))


@serves("compute.instances.setLabels")
def set_labels(call: Call) -> Json:
    labels = call.body.get("labels", {})
    check_labels(labels)
    instance = call.cloud.resources.get(_path(call))
    if known := repeated(call):
        return known
    if call.body.get("labelFingerprint") != instance["labelFingerprint"]:
        raise RefusedError(
            412,
            "conditionNotMet",
            "Labels fingerprint either invalid or resource labels have changed",
        )

    def change() -> None:
        instance.update(labels=labels, labelFingerprint=fingerprint(labels))

    return _changed(call, "setLabels", change)


@serves("compute.instances.setMetadata")
def set_metadata(call: Call) -> Json:
    instance = call.cloud.resources.get(_path(call))
    if known := repeated(call):
        return known
    if call.body.get("fingerprint") != instance["metadata"]["fingerprint"]:
        raise RefusedError(412, "conditionNotMet", "Supplied fingerprint does not match current "
                           "metadata fingerprint.")  # fmt: skip
    items = call.body.get("items", [])

    def change() -> None:
        instance["metadata"].update(items=items, fingerprint=fingerprint(items))
        machines = call.cloud.machines
        machines.power.boot.refresh(machines.vms[_path(call)])

    return _changed(call, "setMetadata", change)


@serves("compute.instances.setDeletionProtection")
def set_deletion_protection(call: Call) -> Json:
    instance = call.cloud.resources.get(_path(call))
    if known := repeated(call):
        return known
    protects = call.get("deletionProtection", "true").lower() == "true"

    def change() -> None:
        instance["deletionProtection"] = protects

    return _changed(call, "setDeletionProtection", change)


@serves("compute.instances.attachDisk")
def attach_disk(call: Call) -> Json:
    instance = call.cloud.resources.get(_path(call))
    if known := repeated(call):
        return known
    path = qualified(call.project.id, call.body.get("source", ""))
    disk = call.cloud.resources.usable(path)
    if disk.get("users"):
        raise RefusedError.in_use(f"disk '{path}'", path_of(disk["users"][0]))
    disk["users"] = [link(_path(call))]
    attached = {
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "deviceName": disk["name"],
        **call.body,
        "kind": "compute#attachedDisk",
        "boot": False,
        "autoDelete": call.body.get("autoDelete", False),
        "index": len(instance["disks"]),
        "source": link(path),
        "diskSizeGb": disk["sizeGb"],
    }
    return _changed(call, "attachDisk", lambda: instance["disks"].append(attached))


@serves("compute.instances.detachDisk")
def detach_disk(call: Call) -> Json:
    instance = call.cloud.resources.get(_path(call))
    if known := repeated(call):
        return known
    named = [each for each in instance["disks"] if each.get("deviceName") == call["deviceName"]]
    if not named or named[0]["boot"]:
        why = "No attached disk found with device name."
        raise RefusedError.invalid_field("deviceName", call["deviceName"], why)

    def change() -> None:
        instance["disks"].remove(named[0])
        call.cloud.resources.get(path_of(named[0]["source"])).pop("users", None)

    return _changed(call, "detachDisk", change)


@serves("compute.instances.getSerialPortOutput")
def get_serial_port_output(call: Call) -> Json:
    path = _path(call)
    call.cloud.resources.get(path)
    vm = call.cloud.machines.vms[path]
    whole = "".join(vm.serial) + call.cloud.machines.power.boot.console(vm)
    begin = min(int(call.get("start", "0")), len(whole))
    return {
        "kind": "compute#serialPortOutput",
        "contents": whole[begin:],
        "start": str(begin),
        "next": str(len(whole)),
        "selfLink": link(f"{path}/serialPort"),
    }


@serves("compute.instances.getGuestAttributes")
def get_guest_attributes(call: Call) -> Json:
    """What the guest agent has published: the host keys, once sshd has them."""
    path = _path(call)
    call.cloud.resources.get(path)
    vm = call.cloud.machines.vms[path]
    asked = call.get("queryPath") or call.get("variableKey")
    namespace, _, key = asked.partition("/")
    metadata = {**call.project.metadata, **vm.metadata()}
    if metadata.get("enable-guest-attributes", "").upper() != "TRUE":
        raise RefusedError(412, "conditionNotMet", "Guest attributes endpoint access is disabled.")
    found = [
        {"namespace": namespace, "key": kind, "value": value}
        for kind, value in sorted(vm.host_keys.items())
        if namespace == "hostkeys" and key in ("", kind)
    ]
    if not found:
        raise RefusedError(
            404, "notFound", f"The resource '{asked}' of type 'Guest Attribute' was not found."
        )
    told: Json = {
        "kind": "compute#guestAttributes",
        "selfLink": link(f"{path}/guestAttributes"),
    }
    if call.get("queryPath"):
        return {**told, "queryPath": asked, "queryValue": {"items": found}}
    return {**told, "variableKey": asked, "variableValue": found[0]["value"]}


def _path(call: Call) -> str:
    """By the machine's name, or by its number."""
    cloud = call.cloud
    folder = f"projects/{call.project.id}/zones/{known_zone(call)}/instances"
    numbered = (cloud.knows_numbers and cloud.machines.numbered(call["instance"])) or ""
    return numbered if numbered.startswith(f"{folder}/") else f"{folder}/{call['instance']}"


def _changed(call: Call, kind: str, change: Any) -> Json:
    path = _path(call)
    scope = path.partition("/instances/")[0]
    return start(call, Work(scope, kind, path, call.cloud.durations.change_s, change))
