"""The life of VMs: provisioned, running and charged for, stopped, preempted, gone.

PROVISIONING → STAGING → RUNNING → STOPPING → TERMINATED or gone · REPAIRING after a host's error
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.doubles.gcp import disks
from tests.doubles.gcp.boot import Boot, Vm
from tests.doubles.gcp.calls import Call
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.faults import FaultKind
from tests.doubles.gcp.meter import Charge
from tests.doubles.gcp.operations import (
    OperationFailed,
    Work,
    nothing,
    repeated,
    start,
    system_event,
)
from tests.doubles.gcp.places import link
from tests.doubles.gcp.power import Power
from tests.doubles.gcp.quota import Use, exceeded
from tests.doubles.gcp.resources import path_of
from tests.doubles.gcp.specification import Specification

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

STAGED_AFTER = 0.4
"""The share of an insert after which the VM has its addresses."""
FAILS_AFTER = 0.3
"""The share of an insert after which it is known that there is no room."""
OFF_AFTER = 0.5
"""The share of a deletion or a stop after which nothing in the VM runs any more."""


class Machines:
    """Every VM of the cloud. Methods are called under the cloud's lock."""

    def __init__(self, cloud: Cloud, boot: Boot) -> None:
        self.cloud = cloud
        self.power = Power(cloud, boot)
        self.vms: dict[str, Vm] = {}
        self.made = 0
        """How many VMs have ever come to run for the first time."""
        self._uses: dict[str, Use] = {}
        self._in_stock: set[str] = set()
        self._leaving: set[str] = set()

    def insert(self, call: Call, wanted: Specification, body: Json) -> Json:
        """Begin to make the VM. Raises: RefusedError (409) when its name is taken."""
        cloud, zone = self.cloud, f"projects/{call.project.id}/zones/{wanted.zone}"
        path = f"{zone}/instances/{wanted.name}"
        cloud.resources.add(path, body)
        vm = Vm(path, body, wanted.zone, wanted.machine, wanted.gpus, wanted.spot)
        try:
            body["disks"] = [self._attached(vm, each, at) for at, each in enumerate(wanted.disks)]
        except RefusedError:
            cloud.resources.remove(path)
            raise
        self.vms[path] = vm
        self._uses[vm.id] = wanted.use
        problem = self._claim(vm, wanted.attachment)
        insert_s = cloud.durations.insert_s
        if problem is None:
            cloud.later(insert_s * STAGED_AFTER, lambda: self._stage(vm))
        work = Work(
            scope=zone,
            kind="insert",
            target=path,
            lasts_s=insert_s if problem is None else insert_s * FAILS_AFTER,
            end=lambda: self._inserted(vm, problem),
            undo=lambda: self._gone(vm),
            method="v1.compute.instances.insert",
        )
        return start(call, work)

    def delete(self, call: Call, path: str) -> Json:
        """Begin to delete the VM, whatever it does. Raises: RefusedError."""
        vm = self._found(path)
        if known := repeated(call):
            return known
        if vm.body.get("deletionProtection"):
            message = "Resource cannot be deleted if it's protected against deletion."
            raise RefusedError.invalid(f"Invalid resource usage: '{message}'.")
        if path in self._leaving:
            raise RefusedError.not_ready(path)

        def begin() -> None:
            self._leaving.add(path)
            vm.body["status"] = "STOPPING"
            self.cloud.later(lasts_s * OFF_AFTER, lambda: self.power.off(vm))

        lasts_s = self.cloud.durations.delete_s
        end = partial(self._gone, vm)
        method = "v1.compute.instances.delete"
        work = Work(_zone(path), "delete", path, lasts_s, end, begin=begin, method=method)
        return start(call, work)

    def stop(self, call: Call, path: str) -> Json:
        vm = self._found(path)
        if known := repeated(call):
            return known

        def begin() -> None:
            if vm.body["status"] == "RUNNING":
                vm.body["status"] = "STOPPING"
                self.cloud.later(lasts_s * OFF_AFTER, lambda: self.power.off(vm))

        lasts_s = self.cloud.durations.stop_s
        end = partial(self._stopped, vm)
        method = "v1.compute.instances.stop"
        work = Work(_zone(path), "stop", path, lasts_s, end, begin=begin, method=method)
        return start(call, work)

    def start(self, call: Call, path: str) -> Json:
        """Raises: RefusedError, when it is neither stopped nor running."""
        vm = self._found(path)
        if known := repeated(call):
            return known
        if vm.body["status"] not in ("TERMINATED", "RUNNING"):
            raise RefusedError.not_ready(path)
        was_off = vm.body["status"] == "TERMINATED"
        problem = self._claim(vm, "") if was_off else None
        if was_off and problem is None:
            vm.body["status"] = "PROVISIONING"

        def end() -> None:
            if problem is not None:
                raise problem
            if was_off:
                self._run(vm)

        method = "v1.compute.instances.start"
        lasts_s = self.cloud.durations.start_s
        return start(call, Work(_zone(path), "start", path, lasts_s, end, method=method))

    def reset(self, call: Call, path: str) -> Json:
        """Off and on again, without leaving RUNNING: the charge goes on."""
        vm = self._found(path)
        if known := repeated(call):
            return known

        def begin() -> None:
            self.power.off(vm)
            self._boot(vm)

        method = "v1.compute.instances.reset"
        lasts_s = self.cloud.durations.change_s
        work = Work(_zone(path), "reset", path, lasts_s, nothing, begin=begin, method=method)
        return start(call, work)

    def numbered(self, number: str) -> str | None:
        """The path of the VM whose number that is, None: there is none."""
        if not number.isdigit():
            return None
        return next((path for path, vm in self.vms.items() if vm.id == number), None)

    def preempt(self, path: str) -> bool:
        """Google takes the VM back: all in it ends at once. False: it was not running."""
        vm = self.vms.get(path)
        if vm is None or vm.body["status"] != "RUNNING":
            return False
        self._event(vm, "compute.instances.preempted")
        self._leave(vm)
        return True

    def host_error(self, path: str) -> bool:
        """The VM's host fails; it starts anew elsewhere if it may. False: it was not running."""
        vm = self.vms.get(path)
        if vm is None or vm.body["status"] != "RUNNING":
            return False
        self._event(vm, "compute.instances.hostError")
        self.power.off(vm)
        self.cloud.meter.stop(vm.id)
        if not vm.body["scheduling"]["automaticRestart"]:
            self._stopped(vm)
            return True
        vm.body["status"] = "REPAIRING"
        self.cloud.later(self.cloud.durations.start_s, lambda: self._restarted(vm))
        return True

    def guest_terminate(self, path: str) -> bool:
        """The VM shuts itself down, as by `poweroff`. False: it was not running."""
        vm = self.vms.get(path)
        if vm is None or vm.body["status"] != "RUNNING":
            return False
        self._event(vm, "compute.instances.guestTerminate")
        self._stopped(vm)
        return True

    def delete_by_hand(self, path: str, principal: str = "person@example.com") -> Json:
        """As a person deletes it in the console. Raises: RefusedError."""
        project = self.cloud.projects[path.split("/")[1]]
        return self.delete(
            Call.by_hand(self.cloud, project, "compute.instances.delete", principal), path
        )

    def stop_by_hand(self, path: str, principal: str = "person@example.com") -> Json:
        project = self.cloud.projects[path.split("/")[1]]
        return self.stop(
            Call.by_hand(self.cloud, project, "compute.instances.stop", principal), path
        )

    def close(self) -> None:
        self.power.close()

    def _found(self, path: str) -> Vm:
        if path not in self.vms:
            raise RefusedError.not_found(path)
        return self.vms[path]

    def _claim(self, vm: Vm, attachment: str) -> OperationFailed | None:
        """Hold quota and stock for the VM; what is missing, and then nothing is held."""
        cloud, use = self.cloud, self._uses[vm.id]
        over = exceeded(cloud, cloud.projects[vm.project], use)
        if over is not None:
            return OperationFailed.quota(over)
        if not cloud.stock.take(vm.zone, vm.machine, vm.gpus):
            return OperationFailed.stockout(vm.zone, vm.project, vm.machine.name, attachment)
        cloud.uses[vm.path] = use
        self._in_stock.add(vm.id)
        return None

    def _let_go(self, vm: Vm) -> None:
        self.cloud.uses.free(vm.path)
        if vm.id in self._in_stock:
            self._in_stock.discard(vm.id)
            self.cloud.stock.give_back(vm.zone, vm.machine, vm.gpus)

    def _attached(self, vm: Vm, disk: Json, index: int) -> Json:
        """The entry of `disks` as the instance tells it; the disk is made if need be."""
        asked = disk.get("initializeParams", {})
        told = {name: value for name, value in disk.items() if name != "initializeParams"}
        told = {
            "type": "PERSISTENT",
            "mode": "READ_WRITE",
            "boot": False,
            "autoDelete": False,
            "interface": "SCSI",
            "deviceName": f"persistent-disk-{index}",
            **told,
            "kind": "compute#attachedDisk",
            "index": index,
        }
        if told["type"] == "SCRATCH":
            return {**told, "diskSizeGb": "375"}
        if "source" not in told:
            name = asked.get("diskName") or (vm.name if index == 0 else f"{vm.name}-{index}")
            path = f"{_zone(vm.path)}/disks/{name}"
            disks.make(self.cloud, path, asked)
            told["source"] = link(path)
        found = self.cloud.resources.get(path_of(told["source"]))
        found["users"] = [link(vm.path)]
        return {**told, "diskSizeGb": found["sizeGb"]}

    def _stage(self, vm: Vm) -> None:
        if self.vms.get(vm.path) is vm and vm.body["status"] == "PROVISIONING":
            vm.body["status"] = "STAGING"
            self.power.place(vm)

    def _inserted(self, vm: Vm, problem: OperationFailed | None) -> None:
        if self.vms.get(vm.path) is not vm or vm.path in self._leaving:
            raise OperationFailed("OPERATION_CANCELED_BY_USER", "It was deleted meanwhile.")
        if problem is not None:
            raise problem
        self.made += 1
        self._run(vm)

    def _run(self, vm: Vm) -> None:
        """From here on it is charged."""
        self.power.place(vm)
        cloud = self.cloud
        vm.body["status"] = "RUNNING"
        vm.body["lastStartTimestamp"] = compute_time(cloud.clock.now())
        price = cloud.meter.price(vm.machine, vm.gpus, spot=vm.spot)
        cloud.meter.start(
            Charge(
                vm.project, vm.zone, vm.name, vm.id, vm.machine.name, vm.spot, price, time.time()
            )
        )
        self._boot(vm)
        lasts = vm.body["scheduling"].get("maxRunDuration", {}).get("seconds")
        if lasts is not None:
            ends_at = compute_time(cloud.clock.now() + int(lasts))
            vm.body["resourceStatus"] = {"scheduling": {"terminationTimestamp": ends_at}}
            leave = partial(self._leave, vm)
            cloud.timers.after(int(lasts), partial(self._if_same, vm, vm.start_count, leave))

    def _boot(self, vm: Vm) -> None:
        """Turn it on: its port opens some time later, unless a fault has it otherwise."""
        self.power.switch_on(vm)
        count, faults = vm.start_count, self.cloud.faults
        for kind, strike in ENDS.items():
            fault = faults.take(frozenset({kind}), "boot", vm.name)
            if fault is not None:
                act = partial(strike, self, vm.path)
                self.cloud.timers.after(fault.seconds, partial(self._if_same, vm, count, act))

    def _if_same(self, vm: Vm, count: int, do: Callable[[], object]) -> None:
        """Unless it has been turned off since."""
        if vm.start_count == count and self.vms.get(vm.path) is vm:
            do()

    def _leave(self, vm: Vm) -> None:
        """Google ends it: deleted or stopped, as its termination action says."""
        self.power.off(vm)
        vm.body["status"] = "STOPPING"
        deletes = vm.body["scheduling"].get("instanceTerminationAction") == "DELETE"
        finish = self._gone if deletes else self._stopped
        self._leaving.add(vm.path)
        self.cloud.later(self.cloud.durations.stop_s * FAILS_AFTER, lambda: finish(vm))

    def _stopped(self, vm: Vm) -> None:
        if self.vms.get(vm.path) is not vm:
            return
        self.power.off(vm)
        self.cloud.meter.stop(vm.id)
        self._let_go(vm)
        self._leaving.discard(vm.path)
        vm.body["status"] = "TERMINATED"
        vm.body["lastStopTimestamp"] = compute_time(self.cloud.clock.now())
        vm.body.pop("resourceStatus", None)
        vm.address = None
        for interface in vm.body["networkInterfaces"]:
            for config in interface.get("accessConfigs", []):
                config.pop("natIP", None)

    def _restarted(self, vm: Vm) -> None:
        if self.vms.get(vm.path) is vm and vm.body["status"] == "REPAIRING":
            self._event(vm, "compute.instances.automaticRestart")
            self._run(vm)

    def _gone(self, vm: Vm) -> None:
        if self.vms.get(vm.path) is not vm:
            return
        self.power.off(vm)
        self.cloud.meter.stop(vm.id)
        self._let_go(vm)
        self._leaving.discard(vm.path)
        for disk in vm.body["disks"]:
            path = path_of(disk.get("source", ""))
            found = self.cloud.resources.find(path) if path else None
            if found is not None and disk["autoDelete"]:
                disks.remove(self.cloud, path)
            elif found is not None:
                found.pop("users", None)
        self.cloud.resources.remove(vm.path)
        del self.vms[vm.path]
        self._uses.pop(vm.id, None)
        self.power.discard(vm)

    def _event(self, vm: Vm, method: str) -> None:
        system_event(self.cloud, _zone(vm.path), method, vm.path)
        self.cloud.audit.system_event(vm.project, vm.path, vm.id, method)


ENDS: Mapping[FaultKind, Callable[[Machines, str], bool]] = MappingProxyType(
    {FaultKind.PREEMPT: Machines.preempt, FaultKind.HOST_ERROR: Machines.host_error}
)
"""What Google does to a running VM, by the fault that scripts it."""


def _zone(path: str) -> str:
    return "/".join(path.split("/")[:4])
