"""AMD GPUs of the lab: machines that are built with what AMD's driver and rocm-smi show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.lab.doubles import put_double
from tests.lab.machine import BOOT_PARTS

MIB = 1 << 20
RENDER_GROUP = 44_001
"""The number of the group whose members may open GPUs, as on most distributions."""
CLASSES = "etc/lab-amd/drm"
# The devices of the lab are one that the kernel has everywhere, and that opening does nothing to.
# What the kernel shows by class is put together anew, because nobody can add a class to it.
BOOT = f"""
mkdir run/lab-classes
for class in sys/class/*; do
  mkdir "run/lab-classes/${{class##*/}}"
  mount --bind "$class" "run/lab-classes/${{class##*/}}"
done
cp -r {CLASSES} run/lab-classes/drm
mount --rbind run/lab-classes sys/class
mkdir dev/dri
for device in kfd $(cd run/lab-classes/drm && find . -name 'renderD*' -printf 'dri/%f '); do
  mknod -m 660 "dev/$device" c 10 237
  chown 0:{RENDER_GROUP} "dev/$device"
done
"""


@dataclass(frozen=True)
class AmdGpus:
    """The parts of a machine with some boards of AMD, for `boot_machine("systemd", AmdGpus())`."""

    model: str = "AMD Radeon PRO W7900"
    count: int = 2
    memory_mib: int = 49_136
    has_tool: bool = True
    """Whether rocm-smi is installed, and not the kernel's driver alone."""
    has_processor_gpu: bool = True
    """Whether the processor has a small GPU of its own, as most desktops have."""

    @property
    def uuids(self) -> list[str]:
        """The uuids of the boards."""
        return [f"GPU-{_number(index)}" for index in range(self.count)]

    def render(self, index: int) -> str:
        """The path of the file that opens one board."""
        return f"/dev/dri/renderD{128 + index}"

    def install(self, disk: Path) -> None:
        """Write them onto the disk of a machine that is being built."""
        boards = {f"card{index}": self._board(disk, index) for index in range(self.count)}
        if self.has_processor_gpu:
            boards[f"card{self.count}"] = _put_processor_gpu(disk, self.count)
        (disk / "etc/lab-amd/boards.json").write_text(json.dumps(boards))
        if self.has_tool:
            put_double(disk, "rocm-smi")
        (disk / BOOT_PARTS).write_text(BOOT)

    def _board(self, disk: Path, index: int) -> dict[str, str]:
        """Put one board below a bridge of its own with 8 lanes; what rocm-smi says of it."""
        bridge, place = f"0000:{0x41 + 2 * index:02x}:00.0", f"0000:{0x42 + 2 * index:02x}:00.0"
        memory = self.memory_mib * MIB
        _put_files(
            disk / CLASSES / ".devices" / bridge,
            {"vendor": "0x1002", **_link("16.0 GT/s PCIe", 8, now="2.5 GT/s PCIe")},
        )
        files = {"vendor": "0x1002", "device": "0x7448", "revision": "0x00"}
        files |= {"unique_id": _number(index), "product_name": self.model}
        files |= {"mem_info_vram_total": str(memory), "mem_info_vram_used": str(512 * MIB)}
        files |= {"gpu_busy_percent": "0", **_link("16.0 GT/s PCIe", 16)}
        _put_card(disk, index, f"{bridge}/{place}", files)
        metrics = disk / CLASSES / ".devices" / bridge / place / "gpu_metrics"
        metrics.write_bytes(bytes([120, 0, 1, 3]) + bytes(116))
        return _said(f"0x{_number(index)}", place, memory, self.model)


def _number(index: int) -> str:
    return f"18f68e602b8a79{index:02x}"


def _link(speed: str, lanes: int, now: str | None = None) -> dict[str, str]:
    most = {"max_link_speed": speed, "max_link_width": "16"}
    return {**most, "current_link_speed": now or speed, "current_link_width": str(lanes)}


def _put_processor_gpu(disk: Path, index: int) -> dict[str, str]:
    place, memory = "0000:0c:00.0", 2048 * MIB
    files = {"vendor": "0x1002", "device": "0x164e", "revision": "0xc6"}
    files |= {"mem_info_vram_total": str(memory), "mem_info_vram_used": "0"}
    _put_card(disk, index, place, files)
    metrics = disk / CLASSES / ".devices" / place / "gpu_metrics"
    metrics.write_bytes(bytes([128, 0, 2, 1]) + bytes(124))
    return _said("N/A", place, memory, "Raphael")


def _put_card(disk: Path, index: int, device: str, files: dict[str, str]) -> None:
    """Put one card below the class of cards, with a plug, as the kernel shows it."""
    folder = disk / CLASSES / ".devices" / device
    _put_files(folder, files)
    (folder / "drm" / f"renderD{128 + index}").mkdir(parents=True)
    card = disk / CLASSES / f"card{index}"
    card.mkdir()
    (card / "device").symlink_to(f"../.devices/{device}")
    (disk / CLASSES / f"card{index}-DP-1").mkdir()


def _put_files(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


def _said(number: str, place: str, memory: int, model: str) -> dict[str, str]:
    return {
        "Unique ID": number,
        "VRAM Total Memory (B)": str(memory),
        "VRAM Total Used Memory (B)": str(512 * MIB),
        "PCI Bus": place.upper(),
        "Card Series": model,
        "Card Model": "0x7448",
        "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
        "Card SKU": "D70401",
    }
