"""What hosts offer on Vast.ai, and the search for it: an ask is one machine, or a part of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.rented.meter import DISK_MONTH_S

HOURS_OF_MONTH = DISK_MONTH_S / 3600
USUAL_STORAGE_GB = 5.0
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, asked: bool(value == asked),
    "neq": lambda value, asked: bool(value != asked),
    "gt": lambda value, asked: value is not None and value > asked,
    "lt": lambda value, asked: value is not None and value < asked,
    "gte": lambda value, asked: value is not None and value >= asked,
    "lte": lambda value, asked: value is not None and value <= asked,
    "in": lambda value, asked: value in asked,
    "notin": lambda value, asked: value not in asked,
}
DEFAULTS: dict[str, Any] = {
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "external": {"eq": False},
}


@dataclass
class Offer:
    """An ask. dph_base: USD an hour without storage; storage_cost: USD a GB for a month;
    gpu_ram: MiB of one GPU; renter: the instance that has it."""

    id: int
    gpu_name: str
    num_gpus: int
    gpu_ram: int
    dph_base: float
    storage_cost: float = 0.15
    disk_space: float = 500.0
    direct_port_count: int = 20
    reliability: float = 0.995
    geolocation: str | None = "Sofia, BG"
    verified: bool = True
    external: bool = False
    datacenter: bool = False
    cpu_ram: int = 20_000
    """MiB of the whole machine, of which the ask has a quarter: less than any host of tests has."""
    disk_bw: float = 100.0
    machine_id: int = 0
    cuda_max_good: float = 12.8
    duration: float = 30 * 86400.0
    renter: int | None = None
    is_listed: bool = True

    def total(self, storage_gb: float) -> float:
        """USD an hour with that much storage."""
        return self.dph_base + storage_gb * self.storage_cost / HOURS_OF_MONTH

    def row(self, storage_gb: float, now: float) -> dict[str, Any]:
        """As a search shows it."""
        total = self.total(storage_gb)
        return {
            "id": self.id,
            "ask_contract_id": self.id,
            "machine_id": self.machine_id or self.id % 100_000,
            "host_id": self.id % 1000,
            "gpu_name": self.gpu_name,
            "num_gpus": self.num_gpus,
            "gpu_ram": self.gpu_ram,
            "gpu_total_ram": self.gpu_ram * self.num_gpus,
            "gpu_frac": 1.0,
            "gpu_arch": "nvidia",
            "dph_base": self.dph_base,
            "dph_total": total,
            "min_bid": round(self.dph_base * 0.5, 4),
            "is_bid": False,
            "storage_cost": self.storage_cost,
            "inet_up_cost": 0.002,
            "inet_down_cost": 0.002,
            "inet_up": 800.0,
            "inet_down": 900.0,
            "reliability": self.reliability,
            "reliability2": self.reliability,
            "cpu_arch": "amd64",
            "cpu_cores": 64,
            "cpu_cores_effective": 16.0,
            "cpu_ram": self.cpu_ram,
            "disk_bw": self.disk_bw,
            "disk_space": self.disk_space,
            "direct_port_count": self.direct_port_count,
            "cuda_max_good": self.cuda_max_good,
            "driver_version": "580.82.07",
            "compute_cap": 890,
            "geolocation": self.geolocation,
            "verification": "verified" if self.verified else "unverified",
            "verified": self.verified,
            "external": self.external,
            "datacenter": self.datacenter,
            "hosting_type": int(self.datacenter),
            "static_ip": True,
            "vms_enabled": False,
            "duration": self.duration,
            "end_date": now + self.duration,
            "score": round(self.reliability / max(total, 0.001), 3),
            "rentable": self.renter is None,
            "rented": self.renter is not None,
            "search": {
                "gpuCostPerHour": self.dph_base,
                "diskHour": total - self.dph_base,
                "totalHour": total,
            },
        }


def usual_offers() -> dict[int, Offer]:
    """A small market: the dearer of two alike comes first, and not every offer will do."""
    offers = [
        Offer(7000001, "RTX 4090", 1, 24564, 0.42, geolocation="Texas, US"),
        Offer(7000002, "RTX 4090", 1, 24564, 0.31),
        Offer(7000003, "RTX 4090", 2, 24564, 0.66, geolocation=None),
        Offer(7000004, "RTX 4090", 1, 24564, 0.19, verified=False),
        Offer(7000005, "RTX 4090", 1, 24564, 0.24, direct_port_count=0),
        Offer(7000006, "A100 SXM4", 1, 40960, 0.71),
        Offer(7000007, "A100 SXM4", 1, 81920, 0.97, datacenter=True, geolocation="US"),
        Offer(7000008, "H100 SXM", 8, 81559, 16.4, datacenter=True),
        Offer(7000009, "RTX 3090", 1, 24576, 0.16, disk_space=40.0),
        Offer(7000010, "Tesla V100", 1, 16384, 0.12),
    ]
    return {each.id: each for each in offers}


@dataclass
class Market:
    """Every ask, by its id."""

    now: Callable[[], float]
    offers: dict[int, Offer] = field(default_factory=usual_offers)

    def add(self, offer: Offer) -> Offer:
        self.offers[offer.id] = offer
        return offer

    def withdraw(self, ask: int) -> None:
        """Its host offers it no more; who has rented it keeps it."""
        self.offers[ask].is_listed = False

    def search(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows that pass every filter, in the order that is asked for."""
        storage = float(asked.get("allocated_storage", USUAL_STORAGE_GB))
        filters = {**DEFAULTS, **{k: v for k, v in asked.items() if isinstance(v, dict)}}
        rows = [
            row
            for row in (each.row(storage, self.now()) for each in self._listed())
            if _passes(row, filters)
        ]
        for name, direction in reversed(asked.get("order", [["score", "desc"]])):
            rows.sort(key=lambda row: row.get(name) or 0, reverse=direction == "desc")
        return rows[: asked.get("limit", len(rows))]

    def _listed(self) -> list[Offer]:
        return [each for each in self.offers.values() if each.is_listed]


def _passes(row: dict[str, Any], filters: dict[str, Any]) -> bool:
    return all(
        OPERATORS[operator](row.get(name), value)
        for name, conditions in filters.items()
        for operator, value in conditions.items()
    )
