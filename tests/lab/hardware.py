"""Hardware that cannot be had: doubles of the tools that show it, put onto a running machine."""

from __future__ import annotations

import json
import uuid

from tests.lab.doubles import put_double
from tests.lab.machine import Machine


def put_gpus(machine: Machine, model: str, count: int, memory_mib: int = 81_920) -> list[str]:
    """Put `count` GPUs into the machine, as nvidia-smi shows them. Their uuids."""
    gpus = shown_gpus(machine.minion_id, model, count, memory_mib)
    _put_nvidia_smi(machine, {"gpus": gpus})
    return [str(gpu["uuid"]) for gpu in gpus]


def shown_gpus(machine: str, model: str, count: int, memory_mib: int) -> list[dict[str, object]]:
    """The GPUs of a machine of this name, as the double of nvidia-smi reads them."""
    names = uuid.uuid5(uuid.NAMESPACE_DNS, machine)
    return [
        {
            "index": index,
            "name": model,
            "uuid": f"GPU-{uuid.uuid5(names, str(index))}",
            "memory.total": memory_mib,
            "memory.used": 0,
            "utilization.gpu": 0,
            "pcie.link.gen.max": 4,
            "pcie.link.width.max": 16,
            "driver_version": "535.183.01",
        }
        for index in range(count)
    ]


def put_gpu_devices(machine: Machine, uuids: list[str]) -> None:
    """Put the device files of GPUs into the machine, and what the driver tells of them in /proc."""
    machine.run("mount", "-t", "tmpfs", "tmpfs", "/proc/driver")
    for minor, uuid_ in enumerate(uuids):
        folder = f"/proc/driver/nvidia/gpus/0000:{0x17 + minor:02x}:00.0"
        machine.run("mkdir", "-p", folder)
        words = f"GPU UUID: \t {uuid_}\nDevice Minor: \t {minor}\n"
        machine.run("tee", f"{folder}/information", input_text=words)
    # Devices that the kernel has everywhere, and that opening does nothing to.
    for name in (*(f"nvidia{minor}" for minor in range(len(uuids))), "nvidiactl"):
        machine.run("mknod", "-m", "666", f"/dev/{name}", "c", "10", "237")


def break_gpus(machine: Machine, text: str, exit_status: int = 9) -> None:
    """nvidia-smi is there and fails, with NVIDIA's words."""
    _put_nvidia_smi(machine, {"exit": exit_status, "text": text})


def _put_nvidia_smi(machine: Machine, world: dict[str, object]) -> None:
    (machine.disk / "etc/lab-gpus.json").write_text(json.dumps(world))
    put_double(machine.disk, "nvidia-smi")
