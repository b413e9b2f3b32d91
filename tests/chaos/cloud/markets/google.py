"""Google's double: machines of a catalogue, in a region with a storage node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.chaos.cloud.markets.market import (
    CREATE,
    LOST,
    PREEMPTED,
    RELEASE,
    UNREACHABLE,
    Charge,
    Enabled,
    Losses,
    Machine,
    Market,
)
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.e2e.platform import Platform

CLOUD_REGION = "us-central1"
CREATE_S = 0.5
DELETE_S = 0.5
BOOT_S = 0.2
NETWORK_S = 0.1
MANY = 1000.0
METRICS = ("CPUS", "INSTANCES", "NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS",
           "PREEMPTIBLE_CPUS", "IN_USE_ADDRESSES", "DISKS_TOTAL_GB", "SSD_TOTAL_GB")  # fmt: skip
LIMITS = {
    "": dict.fromkeys(("GPUS_ALL_REGIONS", "CPUS_ALL_REGIONS"), MANY),
    CLOUD_REGION: dict.fromkeys(METRICS, MANY),
}
METHODS = {CREATE: "compute.instances.insert", RELEASE: "compute.instances.delete"}


class Google(Market):
    """A machine is a real sshd in namespaces of its own, and is charged by the second."""

    kind = "gcp"
    kinds = (*LOST.values(), UNREACHABLE, PREEMPTED)
    says_when_it_ended = True
    reads_offers = False

    def __init__(self) -> None:
        self.double = GcpDouble(boot=ContainedBoot())
        self.cloud = self.double.cloud
        durations = self.cloud.durations
        durations.insert_s, durations.delete_s = CREATE_S, DELETE_S
        durations.ssh_s, durations.network_s = BOOT_S, NETWORK_S
        durations.stop_s = DELETE_S
        for region, limits in LIMITS.items():
            self.double.project.limits[region] = dict(limits)
        self.double.__enter__()
        self.settings: dict[str, str] = {}
        self.environment = self.double.environment

    @property
    def violations(self) -> list[str]:  # type: ignore[override]
        return self.double.violations

    def close(self) -> None:
        self.double.close()

    def enable(self, owner: Platform) -> Enabled:
        body: dict[str, Any] = {"kind": "gcp", "credentials": service_account_key(self.double)}
        provider_id = owner.post("/v1/providers", body)["id"]
        owner.until_status(f"/v1/providers/{provider_id}", "ready")
        body = {
            "provider_id": provider_id, "name": "cloud", "cloud_region": CLOUD_REGION,
            "storage_node_class": "micro", "relaxed_requirements": ["all"],
        }  # fmt: skip
        region_id = owner.post("/v1/regions", body)["id"]
        owner.until_status(f"/v1/regions/{region_id}", "healthy", limit_s=300)
        return Enabled(provider_id, region_id, frozenset(each.name for each in self.machines()))

    def end(self, owner: Platform, enabled: Enabled) -> None:
        path = f"/v1/regions/{enabled.region_id}"
        owner.ask("DELETE", path)
        owner.until_status(path, "archived", limit_s=120)

    def job(self, enabled: Enabled) -> dict[str, Any]:
        return {
            "resources": {"gpus": "T4:1", "cpu_count": 1, "memory_gib": 1},
            "placement": {"region_id": enabled.region_id},
        }

    def machines(self) -> list[Machine]:
        with self.cloud.lock:
            vms = list(self.cloud.machines.vms.values())
        return [Machine(vm.name, vm.id, str(vm.body["status"])) for vm in vms]

    def charges(self) -> list[Charge]:
        with self.cloud.lock:
            charges = list(self.cloud.meter.charges)
        return [
            Charge(each.name, each.instance_id, None, each.started_at, each.ended_at)
            for each in charges
        ]

    def lose(self, name: str) -> bool:
        with self.cloud.lock:
            paths = [path for path, vm in self.cloud.machines.vms.items() if vm.name == name]
            return any(self.cloud.machines.preempt(path) for path in paths)

    @contextmanager
    def losing_replies(self, verb: str, every: int) -> Iterator[Losses]:
        fault = Fault(FaultKind.LOST_REPLY, METHODS[verb], every=every, times=None)
        found = Losses()
        with self.cloud.lock:
            self.cloud.faults.add(fault)
        try:
            yield found
        finally:
            with self.cloud.lock:
                self.cloud.faults.scripted.remove(fault)
            found.struck = fault.struck

    def be_away(self, seconds: float) -> None:
        with self.cloud.lock:
            self.cloud.faults.unreachable_for(seconds)

    @property
    def turned_away(self) -> int:
        return self.cloud.faults.turned_away
