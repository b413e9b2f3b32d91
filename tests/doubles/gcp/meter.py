"""What the cloud charges for: each second that a VM runs.

A VM is charged from the moment it is RUNNING (its `lastStartTimestamp`, the end of the insert or
start operation) until it is TERMINATED or gone (its `lastStopTimestamp`, the end of the stop or
delete operation). PROVISIONING and STAGING cost nothing, STOPPING does. Nothing is rounded up: the
real minimum of a minute is left out, so that seconds can be compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.hardware import MachineType
from tests.doubles.gcp.stock import Gpus

USD = 1_000_000
"""Microcredits in one USD."""
_VM_PER_CPU_HOUR = {
    "n1": 0.0475, "n2": 0.0486, "e2": 0.0335, "custom": 0.0475, "g2": 0.0367, "a2": 0.0616,
    "a3": 0.0455, "a4": 0.0455,
}  # fmt: skip
"""With the usual memory, in USD; us-central1."""
_GPU_HOUR = {
    "nvidia-tesla-p100": (1.46, 0.7034),
    "nvidia-tesla-v100": (2.48, 1.0885),
    "nvidia-tesla-t4": (0.35, 0.175),
    "nvidia-l4": (0.56004, 0.2231),
    "nvidia-tesla-a100": (2.93391, 1.4341),
    "nvidia-a100-80gb": (3.93, 1.964),
    "nvidia-h100-80gb": (9.79655, 5.8632),
    "nvidia-h100-mega-80gb": (9.79655, 5.8632),
    "nvidia-h200-141gb": (10.60, 6.10),
    "nvidia-b200": (14.20, 8.00),
}
"""On demand and spot, in USD, the GPU alone; us-central1 and its like, 2026."""
_SPOT_VM = 0.4


@dataclass
class Charge:
    """One stretch of running. Instants are seconds of the epoch by our own clock, not a skewed one.

    price: microcredits an hour, for the whole machine.
    """

    project: str
    zone: str
    name: str
    instance_id: str
    machine_type: str
    spot: bool
    price: int
    started_at: float
    ended_at: float | None = None

    def seconds(self, now: float) -> float:
        return (self.ended_at or now) - self.started_at

    def told(self, now: float) -> Json:
        seconds = self.seconds(now)
        return {
            **vars(self),
            "seconds": seconds,
            "microcredits": round(seconds * self.price / 3600),
        }


@dataclass
class Meter:
    """Every charge there ever was; prices: microcredits an hour by machine type, where set."""

    charges: list[Charge] = field(default_factory=list)
    prices: dict[str, int] = field(default_factory=dict)

    def start(self, charge: Charge) -> None:
        self.charges.append(charge)

    def stop(self, instance_id: str) -> None:
        """Silent when it is not charged."""
        for charge in self.running():
            if charge.instance_id == instance_id:
                charge.ended_at = time.time()

    def running(self) -> list[Charge]:
        return [charge for charge in self.charges if charge.ended_at is None]

    def seconds(self, name: str) -> float:
        """How long machines of that name have been charged for."""
        now = time.time()
        return sum(charge.seconds(now) for charge in self.charges if charge.name == name)

    def told(self) -> Json:
        now = time.time()
        rows = [charge.told(now) for charge in self.charges]
        return {
            "charges": rows,
            "machines": len({charge.instance_id for charge in self.charges}),
            "running": len(self.running()),
            "microcredits": sum(row["microcredits"] for row in rows),
        }

    def price(self, machine: MachineType, gpus: Gpus, *, spot: bool) -> int:
        """Microcredits an hour of such a machine."""
        if machine.name in self.prices:
            return self.prices[machine.name]
        vm = machine.cpus * _VM_PER_CPU_HOUR.get(machine.family, 0.05) * (_SPOT_VM if spot else 1)
        return round(USD * (vm + sum(_GPU_HOUR[name][spot] * count for name, count in gpus)))
