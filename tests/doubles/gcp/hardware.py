"""What Google builds machines of: GPUs, machine types, regions and zones.

Sources: Google's lists of GPU machine types and zones as of 2026 (catalogues of SkyPilot and
gpuhunt); that a zone has a type says nothing of its stock, which `stock.py` keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType


@dataclass(frozen=True)
class Gpu:
    """A GPU of Compute Engine, by its accelerator type.

    metric: of its regional quota, `family:…` where it has only one of the newer kind;
    counts: how many an N1 machine may have, empty where machine types bring it.
    """

    name: str
    metric: str
    zones: str
    counts: tuple[int, ...] = ()

    def is_in(self, zone: str) -> bool:
        region, _, letter = zone.rpartition("-")
        return letter in _letters(self.zones).get(region, ())

    @property
    def preemptible_metric(self) -> str:
        if self.metric == "family:NVIDIA_H100":
            return "PREEMPTIBLE_NVIDIA_H100_GPUS"
        if self.metric.startswith("family:"):
            return self.metric.replace("family:", "preemptible-family:")
        return f"PREEMPTIBLE_{self.metric}"


_H100 = (
    "us-central1 abc, europe-west4 bc, us-west1 ab, asia-southeast1 bc, asia-east1 c, "
    "europe-west1 bc, us-east4 abc, asia-northeast1 b, asia-northeast3 ac, us-west4 a"
)
GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu(
                "nvidia-tesla-p100",
                "NVIDIA_P100_GPUS",
                "us-central1 cf, europe-west4 a, us-west1 ab, us-east1 bc, asia-east1 ac, "
                "europe-west1 bd",
                (1, 2, 4),
            ),
            Gpu(
                "nvidia-tesla-v100",
                "NVIDIA_V100_GPUS",
                "us-central1 abcf, europe-west4 abc, us-west1 ab, us-east1 bc, asia-east1 c",
                (1, 2, 4, 8),
            ),
            Gpu(
                "nvidia-tesla-t4",
                "NVIDIA_T4_GPUS",
                "us-central1 abcf, europe-west4 abc, us-west1 ab, asia-southeast1 abc, "
                "us-east1 bcd, asia-east1 ac, europe-west1 bcd, us-east4 abc, asia-northeast1 ac, "
                "asia-northeast3 bc, us-west4 ab",
                (1, 2, 4),
            ),
            Gpu(
                "nvidia-l4",
                "NVIDIA_L4_GPUS",
                "us-central1 abc, europe-west4 abc, us-west1 abc, asia-southeast1 abc, "
                "us-east1 bcd, asia-east1 abc, europe-west1 bc, us-east4 ac, asia-northeast1 abc, "
                "asia-northeast3 ab, us-west4 ac",
            ),
            Gpu(
                "nvidia-tesla-a100",
                "NVIDIA_A100_GPUS",
                "us-central1 abcf, europe-west4 ab, us-west1 b, asia-southeast1 abc, us-east1 b, "
                "asia-northeast1 ac, asia-northeast3 ab, us-west4 b",
            ),
            Gpu(
                "nvidia-a100-80gb",
                "NVIDIA_A100_80GB_GPUS",
                "us-central1 ac, europe-west4 a, asia-southeast1 c, us-east4 c",
            ),
            Gpu("nvidia-h100-80gb", "family:NVIDIA_H100", _H100),
            Gpu("nvidia-h100-mega-80gb", "family:NVIDIA_H100_MEGA", _H100),
            Gpu("nvidia-h200-141gb", "family:NVIDIA_H200", "us-central1 b, europe-west1 b"),
            Gpu("nvidia-b200", "family:NVIDIA_B200", "us-central1 b"),
        )
    }
)

SHOWN_AS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "nvidia-tesla-p100": ("Tesla P100-PCIE-16GB", 16384),
        "nvidia-tesla-v100": ("Tesla V100-SXM2-16GB", 16384),
        "nvidia-tesla-t4": ("Tesla T4", 15360),
        "nvidia-l4": ("NVIDIA L4", 23034),
        "nvidia-tesla-a100": ("NVIDIA A100-SXM4-40GB", 40960),
        "nvidia-a100-80gb": ("NVIDIA A100-SXM4-80GB", 81920),
        "nvidia-h100-80gb": ("NVIDIA H100 80GB HBM3", 81559),
        "nvidia-h100-mega-80gb": ("NVIDIA H100 80GB HBM3", 81559),
        "nvidia-h200-141gb": ("NVIDIA H200", 143771),
        "nvidia-b200": ("NVIDIA B200", 183359),
    }
)
"""Each GPU's name and memory in MiB as nvidia-smi shows them."""

ZONES: Mapping[str, str] = MappingProxyType(
    {
        "us-central1": "abcf",
        "europe-west4": "abc",
        "us-west1": "abc",
        "asia-southeast1": "abc",
        "us-east1": "bcd",
        "asia-east1": "abc",
        "europe-west1": "bcd",
        "us-east4": "abc",
        "asia-northeast1": "abc",
        "asia-northeast3": "abc",
        "us-west4": "abc",
    }
)
"""Regions and the letters of their zones: the ten most used for GPUs, and one more."""


@dataclass(frozen=True)
class MachineType:
    """A machine type; gpu and gpu_count: what it brings."""

    name: str
    cpus: int
    memory_mb: int
    gpu: str | None = None
    gpu_count: int = 0
    bundled_ssd_gb: int = 0
    spot_only: bool = False

    @property
    def family(self) -> str:
        return self.name.split("-")[0]


_PER_CPU_MB = {
    "n1-standard": 3840, "n1-highmem": 6656, "n1-highcpu": 922,
    "n2-standard": 4096, "n2-highmem": 8192, "n2-highcpu": 1024,
    "e2-standard": 4096, "e2-highmem": 8192, "e2-highcpu": 1024,
}  # fmt: skip
_CPUS = {
    "n1": (1, 2, 4, 8, 16, 32, 64, 96),
    "n2": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "e2": (2, 4, 8, 16, 32),
}
_SHARED = {"e2-micro": (2, 1024), "e2-small": (2, 2048), "e2-medium": (2, 4096)}
_L4 = {4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8}


def _fixed() -> Iterator[MachineType]:
    """The types that bring their GPUs."""
    for count in (1, 2, 4, 8):
        name = f"a2-highgpu-{count}g"
        yield MachineType(name, 12 * count, 87040 * count, "nvidia-tesla-a100", count)
        name = f"a2-ultragpu-{count}g"
        yield MachineType(name, 12 * count, 174080 * count, "nvidia-a100-80gb", count, 375 * count)
        name = f"a3-highgpu-{count}g"
        ssd_gb = 750 * count
        yield MachineType(
            name, 26 * count, 239616 * count, "nvidia-h100-80gb", count, ssd_gb, count < 8
        )
    yield MachineType("a2-megagpu-16g", 96, 1392640, "nvidia-tesla-a100", 16)
    yield MachineType("a3-megagpu-8g", 208, 1916928, "nvidia-h100-mega-80gb", 8, 6000)
    yield MachineType("a3-ultragpu-8g", 224, 3022848, "nvidia-h200-141gb", 8, 12000, True)
    yield MachineType("a4-highgpu-8g", 224, 4063232, "nvidia-b200", 8, 12000, True)
    for cpus, count in _L4.items():
        yield MachineType(f"g2-standard-{cpus}", cpus, 4096 * cpus, "nvidia-l4", count)


def _plain() -> Iterator[MachineType]:
    for kind, memory_mb in _PER_CPU_MB.items():
        for cpus in _CPUS[kind.split("-")[0]]:
            if kind != "n1-highmem" or cpus > 1:
                yield MachineType(f"{kind}-{cpus}", cpus, memory_mb * cpus)
    for name, (cpus, memory_mb) in _SHARED.items():
        yield MachineType(name, cpus, memory_mb)


MACHINE_TYPES: Mapping[str, MachineType] = MappingProxyType(
    {each.name: each for each in (*_fixed(), *_plain())}
)
_CUSTOM = re.compile(r"(?:n1-)?custom-(\d+)-(\d+)")


def machine_type(name: str, zone: str) -> MachineType | None:
    """The machine type of that name in a zone; None: the zone has none."""
    found = MACHINE_TYPES.get(name)
    if found is None:
        custom = _CUSTOM.fullmatch(name)
        return MachineType(name, int(custom[1]), int(custom[2])) if custom else None
    if found.gpu is not None and not GPUS[found.gpu].is_in(zone):
        return None
    return found


def zone_names(region: str | None = None) -> list[str]:
    """Every zone, or those of one region."""
    regions = ZONES if region is None else [region]
    return [f"{each}-{letter}" for each in regions for letter in ZONES.get(each, "")]


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


@lru_cache
def _letters(zones: str) -> dict[str, str]:
    return dict(each.split() for each in zones.split(", "))
