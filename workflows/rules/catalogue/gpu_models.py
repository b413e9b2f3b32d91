"""GPU models as data: canonical name, class of the usage fee, memory in GB, other spellings.

A spelling is compared without case, blanks, dashes and makers' names (see `gpu_names.py`), so only
spellings that differ after that are listed. `family` is the shorter name that also takes this one.
"""

from dataclasses import dataclass
from enum import StrEnum


class GpuClass(StrEnum):
    """The class that a usage fee is set for."""

    CONSUMER = "consumer"
    PROFESSIONAL = "professional"
    DATACENTER = "datacenter"


@dataclass(frozen=True, slots=True)
class GpuModel:
    name: str
    gpu_class: GpuClass
    memory_gb: int
    aliases: tuple[str, ...] = ()
    family: str | None = None


def _models(gpu_class: GpuClass, *rows: tuple[str, int]) -> tuple[GpuModel, ...]:
    return tuple(GpuModel(name, gpu_class, memory_gb) for name, memory_gb in rows)


CATALOGUE: tuple[GpuModel, ...] = (
    GpuModel("A100", GpuClass.DATACENTER, 40),
    GpuModel("A100-80GB", GpuClass.DATACENTER, 80, ("A100X",), family="A100"),
    GpuModel("V100", GpuClass.DATACENTER, 16),
    GpuModel("V100-32GB", GpuClass.DATACENTER, 32, ("V100S",), family="V100"),
    GpuModel("P100", GpuClass.DATACENTER, 16, ("P100-12GB",)),
    GpuModel("B300", GpuClass.DATACENTER, 288, ("B300AC", "B300PC")),
    GpuModel("H100-NVL", GpuClass.DATACENTER, 94, family="H100"),
    GpuModel("H200-NVL", GpuClass.DATACENTER, 141, family="H200"),
    GpuModel("MI250X", GpuClass.DATACENTER, 128, family="MI250"),
    *_models(
        GpuClass.DATACENTER,
        ("H100", 80),
        ("H200", 141),
        ("H20", 96),
        ("H800", 80),
        ("GH200", 96),
        ("B200", 180),
        ("GB200", 186),
        ("A800", 80),
        ("A2", 16),
        ("A10", 24),
        ("A10G", 24),
        ("A16", 16),
        ("A30", 24),
        ("A40", 48),
        ("L4", 24),
        ("L20", 48),
        ("L40", 48),
        ("L40S", 48),
        ("T4", 16),
        ("T4G", 16),
        ("P4", 8),
        ("P40", 24),
        ("K80", 12),
        ("M60", 8),
        ("MI25", 16),
        ("MI50", 16),
        ("MI60", 32),
        ("MI100", 32),
        ("MI210", 64),
        ("MI250", 128),
        ("MI300A", 128),
        ("MI300X", 192),
        ("MI325X", 256),
        ("MI350X", 288),
        ("MI355X", 288),
    ),
    GpuModel("RTXA6000", GpuClass.PROFESSIONAL, 48, ("A6000",)),
    GpuModel("RTXA5500", GpuClass.PROFESSIONAL, 24, ("A5500",)),
    GpuModel("RTXA5000", GpuClass.PROFESSIONAL, 24, ("A5000",)),
    GpuModel("RTXA4500", GpuClass.PROFESSIONAL, 20, ("A4500",)),
    GpuModel("RTXA4000", GpuClass.PROFESSIONAL, 16, ("A4000",)),
    GpuModel("RTXA2000", GpuClass.PROFESSIONAL, 6, ("A2000", "A2000-12GB", "RTXA2000-12GB")),
    GpuModel("QuadroRTX8000", GpuClass.PROFESSIONAL, 48, ("QRTX8000",)),
    GpuModel("QuadroRTX6000", GpuClass.PROFESSIONAL, 24, ("QRTX6000",)),
    GpuModel(
        "RTXPRO6000",
        GpuClass.PROFESSIONAL,
        96,
        ("RTXPRO6000S", "RTXPRO6000WS", "RTXPRO6000MaxQ"),
    ),
    *_models(
        GpuClass.PROFESSIONAL,
        ("RTX6000Ada", 48),
        ("RTX5880Ada", 48),
        ("RTX5000Ada", 32),
        ("RTX4500Ada", 24),
        ("RTX4000Ada", 20),
        ("RTX2000Ada", 16),
        ("RTXPRO5000", 48),
        ("RTXPRO4500", 32),
        ("RTXPRO4000", 24),
        ("QuadroRTX5000", 16),
        ("QuadroRTX4000", 8),
        ("QuadroGV100", 32),
        ("QuadroGP100", 16),
        ("QuadroP6000", 24),
        ("QuadroP5000", 16),
        ("QuadroP4000", 8),
        ("RadeonProW7900", 48),
        ("RadeonProW7800", 32),
        ("RadeonProW7700", 16),
        ("RadeonProW7600", 8),
        ("RadeonProW6800", 32),
        ("RadeonProW6600", 8),
        ("RadeonProV620", 32),
        ("RadeonAIProR9700", 32),
        ("RadeonProVII", 16),
    ),
    *_models(
        GpuClass.CONSUMER,
        ("RTX5090", 32),
        ("RTX5080", 16),
        ("RTX5070Ti", 16),
        ("RTX5070", 12),
        ("RTX5060Ti", 16),
        ("RTX5060", 8),
        ("RTX4090", 24),
        ("RTX4090D", 24),
        ("RTX4080", 16),
        ("RTX4080Super", 16),
        ("RTX4070", 12),
        ("RTX4070Super", 12),
        ("RTX4070Ti", 12),
        ("RTX4070TiSuper", 16),
        ("RTX4060", 8),
        ("RTX4060Ti", 8),
        ("RTX3090", 24),
        ("RTX3090Ti", 24),
        ("RTX3080", 10),
        ("RTX3080Ti", 12),
        ("RTX3070", 8),
        ("RTX3070Ti", 8),
        ("RTX3060", 12),
        ("RTX3060Ti", 8),
        ("RTX3050", 8),
        ("RTX2080", 8),
        ("RTX2080Super", 8),
        ("RTX2080Ti", 11),
        ("RTX2070", 8),
        ("RTX2070Super", 8),
        ("RTX2060", 6),
        ("GTX1660", 6),
        ("GTX1660Ti", 6),
        ("GTX1660Super", 6),
        ("GTX1650", 4),
        ("GTX1080", 8),
        ("GTX1080Ti", 11),
        ("GTX1070", 8),
        ("GTX1070Ti", 8),
        ("GTX1060", 6),
        ("TITANV", 12),
        ("TITANRTX", 24),
        ("TITANXp", 12),
        ("RX9070XT", 16),
        ("RX9070", 16),
        ("RX9060XT", 16),
        ("RX7900XTX", 24),
        ("RX7900XT", 20),
        ("RX7900GRE", 16),
        ("RX7800XT", 16),
        ("RX7700XT", 12),
        ("RX7600XT", 16),
        ("RX7600", 8),
        ("RX6950XT", 16),
        ("RX6900XT", 16),
        ("RX6800XT", 16),
        ("RX6800", 16),
        ("RX6750XT", 12),
        ("RX6700XT", 12),
        ("RadeonVII", 16),
    ),
)
