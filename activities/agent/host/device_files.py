"""The device files that a run may open: those that every program needs, and those of its GPUs."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import subprocess
from typing import Any

from ..errors import RefusedError
from . import amd_gpus, jetson
from .nvidia_gpus import nvidia_smi

DEVICES = "/dev"
DRIVER = "/proc/driver/nvidia"
PLAIN = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "log"),
    *("fd", "stdin", "stdout", "stderr", "hugepages", "fuse", "net", "infiniband"),
)
"""What each run has, where this machine has it; `infiniband` is the network between GPUs."""
SHARED = frozenset(("shm", "mqueue", "log", "hugepages", "fuse", "net", "infiniband"))
"""What leads to other runs, to services and to other machines: no federated run has it."""
OF_ALL_GPUS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""What each run with a GPU has; a GPU itself is opened by a file of its own."""
ONE_FOR_ALL = "dxg"
"""The one device of all GPUs of a Linux under Windows."""
QUERY_LIMIT_S = 60.0
OF_MEDIA = {"video4linux": 81, "alsa": 116}
"""The fixed major numbers; that of `media` is another one on each machine."""


def of_run(spec: dict[str, Any]) -> list[str] | None:
    """The names below /dev of what a run may open; None: the run has the /dev of this machine.

    Only what exists is named. A container has a /dev by itself, and without root no run has one.
    Raises: RefusedError `gpu-device`, when the driver names no device of a GPU of the run.
    """
    if os.geteuid() != 0 or not spec.get("user") or spec.get("runtime") == "podman":
        return None
    plain = [one for one in PLAIN if not (spec.get("federated") and one in SHARED)]
    return _existing([*plain, *of_its_gpus(spec), *of_media(spec)])


def of_media(spec: dict[str, Any]) -> list[str]:
    """The names below /dev of the video, media and sound devices that a run may open now."""
    return jetson.media_files() if spec.get("has_media") else []


def media_majors() -> list[int]:
    """The major numbers of the device files of video, media and sound, by the kernel's list."""
    found = set(OF_MEDIA.values())
    with contextlib.suppress(OSError), open("/proc/devices") as file:
        for line in file.read().partition("Block devices:")[0].splitlines():
            number, _, name = line.strip().partition(" ")
            if name in ("media", *OF_MEDIA) and number.isdigit():
                found.add(int(number))
    return sorted(found)


def of_its_gpus(spec: dict[str, Any]) -> list[str]:
    """The names below /dev of what opens the GPUs of a run; only what exists is named.

    Raises: RefusedError `gpu-device`, when the driver names no device of a GPU of the run.
    """
    asked = [str(one) for one in spec.get("gpu_uuids") or []]
    if asked and jetson.is_jetson():
        return jetson.device_files()
    names: list[str] = []
    cards = amd_gpus.by_uuid() if asked else {}
    for one in asked:
        if one in cards:
            names += [*amd_gpus.OF_ALL, cards[one].render]
        elif amd_gpus.is_named_so(one):
            words = "GPU %s: no AMD GPU of this machine has that id; found %s"
            raise RefusedError("gpu-device", words % (one, ", ".join(sorted(cards)) or "none"))
        elif _of_nvidia():
            names += [*OF_ALL_GPUS, *_of_gpu(one)]
    return _existing(list(dict.fromkeys(names)))


def of_gpus() -> list[str]:
    """The paths of the device files of all GPUs of this machine."""
    return _of_nvidia() + [os.path.join(DEVICES, card.render) for card in amd_gpus.cards()]


def _of_nvidia() -> list[str]:
    found = glob.glob(os.path.join(DEVICES, "nvidia[0-9]*"))
    return found + glob.glob(os.path.join(DEVICES, ONE_FOR_ALL))


def _existing(names: list[str]) -> list[str]:
    return [name for name in names if os.path.lexists(os.path.join(DEVICES, name))]


def have_one_device() -> bool:
    """Whether all GPUs of this machine are opened by one device file."""
    return os.path.exists(os.path.join(DEVICES, ONE_FOR_ALL))


def paths_of(names: list[str]) -> list[str]:
    """The paths of the character devices that have these names or are in these folders."""
    tops = [os.path.join(DEVICES, name) for name in names if name != "pts"]
    inside = [path for top in tops if not os.path.islink(top) for path in glob.glob(top + "/*")]
    return [path for path in tops + inside if _is_device(path)]


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:  # It has gone by now.
        return False


def _of_gpu(asked: str) -> list[str]:
    """The names of one GPU's own device files. Raises: RefusedError `gpu-device`."""
    if have_one_device():
        return [ONE_FOR_ALL]
    known = _known()
    # A GPU that nobody uses may not have told its UUID: then its place on the bus identifies it.
    found = known.get(asked) or known.get(_place_of(asked))
    if found is None:
        words = "GPU %s: the driver names no device of it; found %s"
        raise RefusedError("gpu-device", words % (asked, ", ".join(sorted(known)) or "none"))
    place, minor = found
    names = ["nvidia%d" % minor, *_instances(minor)]
    render = os.path.join(DEVICES, "dri/by-path/pci-%s-render" % place)
    if os.path.exists(render):
        names.append(os.path.relpath(os.path.realpath(render), DEVICES))
    return names


def _known() -> dict[str, tuple[str, int]]:
    """The place on the bus and the minor number of each GPU, by its UUID and by that place."""
    found = {}
    for path in glob.glob(os.path.join(DRIVER, "gpus/*/information")):
        with open(path, errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        minor = lines.get("Device Minor", "").strip()
        if minor.isdigit():
            place = os.path.basename(os.path.dirname(path)).lower()
            found[place] = found[lines.get("GPU UUID", "").strip()] = (place, int(minor))
    return found


def _place_of(asked: str) -> str:
    """The place on the bus of a GPU that is named by its UUID or index; empty: there is no such."""
    query = [nvidia_smi() or "nvidia-smi", "--query-gpu=index,uuid,pci.bus_id"]
    try:
        done = subprocess.run(
            [*query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=QUERY_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError("gpu-device", "GPU %s: nvidia-smi: %s" % (asked, error)) from error
    for line in done.stdout.decode(errors="replace").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and asked in fields[:2]:
            # nvidia-smi writes the domain with eight digits, the kernel with four.
            return re.sub(r"\A0000(?=\w{4}:)", "", fields[2].lower())
    return ""


def _instances(minor: int) -> list[str]:
    """The files that open the instances into which a GPU is divided."""
    top = os.path.join(DRIVER, "capabilities/gpu%d/mig" % minor)
    names = []
    for path in glob.glob(top + "/*/access") + glob.glob(top + "/*/*/access"):
        with open(path, errors="replace") as file:
            number = re.search(r"DeviceFileMinor:\s*(\d+)", file.read())
        if number:
            names.append("nvidia-caps/nvidia-cap%s" % number.group(1))
    return names
