"""The inspection of this machine: its hardware, as its own kernel and drivers report it."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
from typing import Any

from ..errors import RefusedError
from ..folders import Folders
from . import amd_gpus, containers, disk, jetson, nvidia_gpus, processes, speeds

SIOCGIFADDR = 0x8915
MEMORY_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""The memory that a container may use; a system that is none has no such file, or a huge number."""


def inspect_machine(request: dict[str, Any]) -> dict[str, Any]:
    """Hardware and system of this machine. Raises: RefusedError `gpu-driver`.

    tries_speeds: whether to try how fast its disk and its CPU are as well.
    """
    root = _existing(Folders(request.get("root", "")).root)
    is_tried = bool(request.get("tries_speeds"))
    return {
        "hardware": {
            "cpu_count": os.cpu_count() or 1,
            "core_count": core_count(),
            "cpu_model": _cpu_model(),
            "memory_bytes": _memory_bytes(),
            "disks": disks(_lsblk()),
            "network_mbps": network_mbps(),
            "tpm": has_tpm_2(),
            "gpus": gpus(),
            "jetson": jetson.found(),
            "hostname": socket.gethostname(),
            "kernel": platform.release(),
            "os_name": _os_name(),
            "python_version": platform.python_version(),
            "is_root": os.geteuid() == 0,
            "runtimes": runtimes(),
            "reboot_required": os.path.exists("/run/reboot-required"),
            "boot_id": processes.boot_id(),
            "free_disk_bytes": disk.free_bytes(root),
            "disk_bytes": disk.size_bytes(root),
            "disk_mb_per_s": speeds.disk_mb_per_s(root) if is_tried else None,
            "cpu_mb_per_s": speeds.cpu_mb_per_s() if is_tried else None,
            "addresses": addresses(),
        }
    }


def gpus() -> list[dict[str, Any]]:
    """The GPUs of both makers, NVIDIA's first; empty when no driver is installed.

    Raises: RefusedError `gpu-driver`, when the tool of NVIDIA's driver fails; but not on a Jetson,
    which has one GPU whatever the tool says.
    """
    if jetson.is_jetson():
        of_driver: list[dict[str, Any]] = []
        with contextlib.suppress(RefusedError):
            of_driver = nvidia_gpus.gpus()
        return jetson.gpus(of_driver, _memory_bytes())
    found = nvidia_gpus.gpus()
    return found + amd_gpus.gpus(1 + max((gpu["index"] for gpu in found), default=-1))


def _lsblk() -> str:
    arguments = ["lsblk", "-J", "-b", "-d", "-o", "NAME,ROTA,TRAN,SIZE,TYPE"]
    try:
        return subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).stdout.decode()
    except OSError:
        return ""


def disks(lsblk: str) -> list[dict[str, Any]]:
    """Whole disks out of lsblk's JSON; old versions print numbers and truth as strings."""
    try:
        devices = json.loads(lsblk)["blockdevices"]
    except (ValueError, KeyError):
        return []
    return [
        {
            "name": device["name"],
            "size_bytes": int(device["size"] or 0),
            "rotational": device["rota"] in (True, 1, "1"),
            "transport": device["tran"] or _transport(device["name"]),
        }
        for device in devices
        if device["type"] == "disk" and int(device["size"] or 0) > 0
    ]


def _transport(name: str) -> str | None:
    """The transport of a drive by its name, because some kernels do not report NVMe."""
    return "nvme" if name.startswith("nvme") else None


def network_mbps(interfaces: str = "/sys/class/net") -> int | None:
    """The speed of the fastest network card that reports a speed; None when none does.

    A bridge, a tunnel or one end of a virtual pair has no device, and its speed is not real.
    """
    speeds = []
    for device in glob.glob(os.path.join(interfaces, "*", "device")):
        try:
            with open(os.path.join(os.path.dirname(device), "speed")) as file:
                speeds.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return max((speed for speed in speeds if speed > 0), default=None)


def has_tpm_2(top: str = "/") -> bool:
    """Whether there is a TPM, and one of version 2.

    Old kernels do not report the version, but only version 2 has a resource manager's device.
    """
    if glob.glob(os.path.join(top, "dev/tpmrm*")):
        return True
    versions = glob.glob(os.path.join(top, "sys/class/tpm/tpm*/tpm_version_major"))
    return any("2" in _lines(path) for path in versions)


def core_count(cpus: str = "/sys/devices/system/cpu") -> int | None:
    """The physical cores that are online; None when the kernel does not say which CPUs share one.

    The threads of a core have the package and the core in common.
    """
    cores = set()
    for path in glob.glob(os.path.join(cpus, "cpu[0-9]*", "topology", "core_id")):
        package = os.path.join(os.path.dirname(path), "physical_package_id")
        die = os.path.join(os.path.dirname(path), "die_id")
        cores.add(tuple("".join(_lines(each)) for each in (package, die, path)))
    return len(cores) or None


def _cpu_model() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_bytes() -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            return container_memory(int(line.split()[1]) * 1024)
    return 0


def container_memory(of_machine: int, limits: tuple[str, ...] = MEMORY_LIMITS) -> int:
    """The memory that we may use: that of the machine, or less where we are in a container."""
    found = [line for path in limits for line in _lines(path)[:1]]
    return min([of_machine, *(int(each) for each in found if each.isdecimal())])


def _os_name() -> str:
    for line in _lines("/etc/os-release"):
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip().strip('"')
    return platform.system()


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def runtimes() -> list[str]:
    """The runtimes that work here; one that is installed but does not answer is left out."""
    found = ["process"]
    if os.geteuid() == 0 and os.path.isdir("/run/systemd/system") and _systemd_runs():
        found.append("systemd")
    if shutil.which("podman") and containers.answers():
        found.append("podman")
    return found


def _systemd_runs() -> bool:
    try:
        done = subprocess.run(
            ["systemctl", "is-system-running"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.decode().strip() in ("running", "degraded", "starting")


def _existing(path: str) -> str:
    """The folder, or the nearest one above that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def addresses() -> list[str]:
    """The IPv4 address of each interface but the loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(
                    probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15])
                )
            except OSError:
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return [one for one in found if not one.startswith("127.")]
