"""Jetsons of the lab: machines that are built with doubles of what NVIDIA's boards show."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.lab.doubles import put_double
from tests.lab.machine import BOOT_PARTS

GIB = 1024**3
DEVICES = (
    *("nvhost-ctrl", "nvhost-ctrl-gpu", "nvhost-as-gpu", "nvmap", "nvgpu/igpu0/ctrl"),
    *("dri/card0", "dri/renderD128", "video0", "media0", "v4l-subdev0", "snd/pcmC0D0p", "rtc0"),
)
"""Of the accelerator, then of plugged-in video and sound, and one of neither."""
VIDEO_GROUP = 44
"""The number of the group whose members may open the accelerator, as on NVIDIA's own systems."""
# The devices of the lab are one that the kernel has everywhere, and that opening does nothing to.
BOOT = f"""
mount -t tmpfs -o mode=755 tmpfs sys/firmware
mkdir -p sys/firmware/devicetree
cp -r etc/lab-jetson/tree sys/firmware/devicetree/base
mount --bind etc/lab-jetson/meminfo proc/meminfo
while read -r device; do
  mkdir -p "$(dirname "dev/$device")"
  mknod -m 660 "dev/$device" c 10 237
  chown 0:{VIDEO_GROUP} "dev/$device"
done < etc/lab-jetson/devices
"""


@dataclass(frozen=True)
class Board:
    """What one board says of itself, in the release that it has."""

    model_text: str
    compatible: tuple[str, ...]
    memory_gib: float
    """What the kernel has of the memory, which is a little less than the module."""
    revision: tuple[int, str]
    tegrastats: str
    power_modes: tuple[str, ...]
    has_nvidia_smi: bool = False


NEWER = (
    "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) SWAP 0/31408MB (cached 0MB) "
    "CPU [23%@2201,10%@2201,off,off] EMC_FREQ 3%@3199 GR3D_FREQ 14%@[1300,1300] "
    "cpu@52.968C tboard@41.5C soc2@49.1C tj@52.968C gpu@-256C VDD_GPU_SOC 4000mW/4000mW"
)
OLDER = (
    "RAM 2418/7765MB (lfb 934x4MB) SWAP 0/3882MB (cached 0MB) "
    "CPU [9%@1420,4%@1420,off,off,off,off] EMC_FREQ 0%@1600 GR3D_FREQ 7%@114 VIC_FREQ 0%@115 "
    "APE 150 AO@38C GPU@38.5C PMIC@50C AUX@39C CPU@40C thermal@39.2C VDD_IN 3200/3200"
)
BARE = "RAM 812/1980MB (lfb 2x1MB) CPU [9%@345,off,off,off] EMC_FREQ 0% GR3D_FREQ 0% CPU@31C"
BOARDS = {
    "AGX Xavier": Board(
        "Jetson-AGX",
        ("nvidia,p2972-0000", "nvidia,tegra194"),
        *(31.2, (35, "4.1"), OLDER, ("MAXN", "MODE_10W", "MODE_15W")),
    ),
    "Xavier NX": Board(
        "NVIDIA Jetson Xavier NX Developer Kit",
        ("nvidia,p3509-0000+p3668-0000", "nvidia,p3509-0000", "nvidia,tegra194"),
        *(7.6, (35, "4.1"), OLDER, ("MODE_15W_2CORE", "MODE_10W_2CORE")),
    ),
    "AGX Orin": Board(
        "NVIDIA Jetson AGX Orin Developer Kit",
        ("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"),
        *(61.4, (36, "4.3"), NEWER, ("MAXN", "MODE_15W", "MODE_30W")),
        has_nvidia_smi=True,
    ),
    "Orin NX": Board(
        "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super",
        ("nvidia,p3768-0000+p3767-0000-super", "nvidia,p3767-0000", "nvidia,tegra234"),
        *(15.3, (36, "4.3"), NEWER, ("MAXN_SUPER", "10W", "15W")),
        has_nvidia_smi=True,
    ),
    "Orin Nano": Board(
        "NVIDIA Jetson Orin Nano Developer Kit",
        ("nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"),
        *(7.4, (35, "4.1"), NEWER, ("15W", "7W")),
    ),
    "Nano": Board(
        "NVIDIA Jetson Nano Developer Kit",
        ("nvidia,p3450-0000", "nvidia,jetson-nano", "nvidia,tegra210"),
        *(3.9, (32, "7.4"), BARE, ("MAXN", "5W")),
    ),
    "TX2": Board(
        "quill",
        ("nvidia,p2771-0000", "nvidia,tegra186"),
        *(7.7, (32, "7.4"), BARE, ("MAXN", "MAXQ")),
    ),
}
"""Boards by the short name of their model; the last two are none that can be a device."""


@dataclass(frozen=True)
class Jetson:
    """The parts of one Jetson, for `boot_machine("systemd", Jetson("Orin NX"))`."""

    model: str
    serial_number: str | None = None
    """None: one that no other machine has."""

    @property
    def board(self) -> Board:
        return BOARDS[self.model]

    def install(self, disk: Path) -> None:
        """Write them onto the disk of a machine that is being built."""
        own = disk / "etc/lab-jetson"
        (own / "tree").mkdir(parents=True)
        for name, content in (
            ("model", self.board.model_text),
            ("compatible", "\0".join(self.board.compatible)),
            ("serial-number", self.serial_number or str(uuid.uuid4().int)[:13]),
        ):
            (own / "tree" / name).write_bytes(content.encode() + b"\0")
        (own / "meminfo").write_text(_meminfo(int(self.board.memory_gib * GIB) // 1024))
        (own / "devices").write_text("".join(f"{device}\n" for device in DEVICES))
        (own / "tegrastats").write_text(self.board.tegrastats)
        power = {"mode": 0, "modes": list(self.board.power_modes)}
        (own / "power.json").write_text(json.dumps(power))
        release, revision = self.board.revision
        words = f"# R{release} (release), REVISION: {revision}, GCID: 33958178, BOARD: generic, "
        (disk / "etc/nv_tegra_release").write_text(f"{words}EABI: aarch64\n")
        put_double(disk, "tegrastats")
        put_double(disk, "nvpmodel")
        if self.board.has_nvidia_smi:
            self._put_nvidia_smi(disk)
        (disk / BOOT_PARTS).write_text(BOOT)

    def _put_nvidia_smi(self, disk: Path) -> None:
        unknown = ["memory.total", "memory.used", "utilization.gpu", "uuid"]
        unknown += ["pcie.link.gen.max", "pcie.link.width.max"]
        gpu = {"index": 0, "name": "Orin (nvgpu)", "driver_version": "540.4.0"}
        gpu |= dict.fromkeys(unknown, "[N/A]")
        (disk / "etc/lab-gpus.json").write_text(json.dumps({"gpus": [gpu]}))
        put_double(disk, "nvidia-smi")


def _meminfo(total_kib: int) -> str:
    """What /proc/meminfo shows on a machine with so much memory."""
    sizes = {"MemTotal": total_kib, "MemFree": total_kib // 2, "MemAvailable": total_kib * 3 // 4}
    host = [line for line in Path("/proc/meminfo").read_text().splitlines() if line]
    rest = [line for line in host if line.partition(":")[0] not in sizes]
    own = [f"{name + ':':<15}{size:>9} kB" for name, size in sizes.items()]
    return "".join(f"{line}\n" for line in own + rest)
