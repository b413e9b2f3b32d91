"""What RunPod has: GPU types, their prices, and how many are free in each of its clouds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.doubles.rented.door import Call
from tests.doubles.runpod.errors import refused

CLOUDS = ("SECURE", "COMMUNITY")


@dataclass(frozen=True)
class GpuType:
    """Prices in USD an hour of one; max_count: of one machine. None and 0: not in that cloud."""

    id: str
    name: str
    memory: int
    secure: float
    community: float
    max_secure: int = 8
    max_community: int = 4
    manufacturer: str = "NVIDIA"
    pool: str | None = None

    def price(self, cloud: str) -> float:
        return self.secure if cloud == "SECURE" else self.community

    def max_count(self, cloud: str) -> int:
        return self.max_secure if cloud == "SECURE" else self.max_community


TYPES = (
    GpuType("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.69, 0.34, pool="ADA_24"),
    GpuType("NVIDIA GeForce RTX 3090", "RTX 3090", 24, 0.46, 0.22, pool="AMPERE_24"),
    GpuType("NVIDIA RTX A4000", "RTX A4000", 16, 0.25, 0.17, pool="AMPERE_16"),
    GpuType("NVIDIA RTX A6000", "RTX A6000", 48, 0.49, 0.33, pool="AMPERE_48"),
    GpuType("NVIDIA L4", "L4", 24, 0.39, 0.0, max_community=0, pool="ADA_24"),
    GpuType("NVIDIA L40S", "L40S", 48, 0.99, 0.79, pool="ADA_48_PRO"),
    GpuType("NVIDIA  A30", "A30", 24, 0.0, 0.22, max_secure=0),
    GpuType("NVIDIA A40", "A40", 48, 0.44, 0.35, max_secure=10, pool="AMPERE_48"),
    GpuType("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.39, 1.19, pool="AMPERE_80"),
    GpuType("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, 1.49, 1.39, pool="AMPERE_80"),
    GpuType("NVIDIA H100 PCIe", "H100 PCIe", 80, 2.89, 1.99, pool="ADA_80_PRO"),
    GpuType("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 3.29, 2.69, pool="ADA_80_PRO"),
    GpuType("NVIDIA H100 NVL", "H100 NVL", 94, 3.19, 2.59, pool="HOPPER_94"),
    GpuType("NVIDIA H200", "H200 SXM", 141, 3.99, 0.0, max_community=0, pool="HOPPER_141"),
    GpuType("NVIDIA B200", "B200", 180, 5.98, 0.0, max_community=0, pool="BLACKWELL_180"),
    GpuType(
        "AMD Instinct MI300X OAM", "MI300X", 192, 2.49, 0.0, max_community=0, manufacturer="AMD",
    ),
)  # fmt: skip
"""The ids as RunPod writes them, the doubled space of one included."""


@dataclass
class Catalogue:
    """types: by id; free: GPUs by id and cloud; forbidden: ids that this account may not have."""

    types: dict[str, GpuType] = field(default_factory=lambda: {each.id: each for each in TYPES})
    free: dict[tuple[str, str], int] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    usual_free: int = 16

    def free_of(self, gpu: str, cloud: str) -> int:
        known = self.types.get(gpu)
        if known is None or known.max_count(cloud) == 0:
            return 0
        return self.free.get((gpu, cloud), self.usual_free)

    def take(self, gpu: str, cloud: str, count: int) -> None:
        """Give back by a negative count."""
        self.free[gpu, cloud] = self.free_of(gpu, cloud) - count

    def reprice(self, gpu: str, cloud: str, usd: float) -> None:
        changed = {**vars(self.types[gpu]), cloud.lower(): usd}
        self.types[gpu] = GpuType(**changed)

    def listed(self, call: Call) -> dict[str, Any]:
        """The answer of `GET /v2/catalog/gpus`."""
        query = call.asked.query
        included = "include" in query
        if included != ("product" in query):
            raise refused(
                400, "product is required with include=AVAILABILITY, and valid only with it"
            )
        if not included and ("count" in query or "cloud" in query):
            raise refused(400, "count and cloud are valid only with include=AVAILABILITY")
        count, cloud = int(query.get("count", "1")), query.get("cloud", "SECURE")
        rows = []
        for each in self.types.values():
            row = _row(each)
            if included:
                row["availability"] = self._level(each, cloud, count)
            rows.append(row)
        return {"gpus": rows}

    def _level(self, gpu: GpuType, cloud: str, count: int) -> str:
        machines = self.free_of(gpu.id, cloud) // count if count <= gpu.max_count(cloud) else 0
        if machines == 0:
            return "NONE"
        if machines < 3:
            return "LOW"
        return "MEDIUM" if machines < 10 else "HIGH"


def _row(gpu: GpuType) -> dict[str, Any]:
    return {
        "id": gpu.id,
        "name": gpu.name,
        "pool": gpu.pool,
        "manufacturer": gpu.manufacturer,
        "memory": gpu.memory,
        "secure": gpu.max_secure > 0,
        "community": gpu.max_community > 0,
        "price": {"secure": gpu.secure, "community": gpu.community},
        "maxCount": {"secure": gpu.max_secure, "community": gpu.max_community},
    }
