"""What a run gets for the GPUs that it holds: variables, groups, options of its container.

Which device files it may open, `device_files.py` says.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ..errors import RefusedError
from . import amd_gpus, device_files, jetson

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where machines describe to podman what belongs to a GPU of NVIDIA."""
READ_WRITE = 0o6


def variables(spec: dict[str, Any]) -> dict[str, str]:
    """What names its GPUs to the makers' runtimes, which would else show all that they find."""
    asked = [str(one) for one in spec.get("gpu_uuids") or []]
    if asked and jetson.is_jetson():
        # Its GPU has no id that CUDA knows.
        return {"CUDA_VISIBLE_DEVICES": "0"}
    cards = amd_gpus.by_uuid()
    of_amd = [cards[one] for one in asked if one in cards]
    found = {"CUDA_VISIBLE_DEVICES": ",".join(one for one in asked if one not in cards)}
    if cards:
        # HIP numbers what ROCr leaves, and takes an empty list for none given.
        found["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(of_amd)))) or "-1"
        if all(card.is_numbered for card in of_amd):
            found["ROCR_VISIBLE_DEVICES"] = ",".join(card.uuid for card in of_amd)
    return found


def groups(spec: dict[str, Any]) -> list[int]:
    """The groups that may open the files of its GPUs and media devices, where not everybody may;
    NVIDIA's driver lets everybody open its own.

    The group of root is never one of them.
    """
    try:
        names = device_files.of_its_gpus(_by_files(spec))
        return groups_of(names + device_files.of_media(spec))
    except RefusedError:  # A GPU has gone since the start, and the run goes on without it.
        return []


def groups_of(names: list[str]) -> list[int]:
    """The groups that may open these files below /dev, which not everybody may open."""
    found = set()
    for name in names:
        try:
            status = os.stat(os.path.join(device_files.DEVICES, name))
        except OSError:  # It has gone by now.
            continue
        for_all, for_group = status.st_mode & READ_WRITE, status.st_mode >> 3 & READ_WRITE
        if stat.S_ISCHR(status.st_mode) and for_all != READ_WRITE and for_group == READ_WRITE:
            found.add(status.st_gid)
    return sorted(found - {0})


def options(spec: dict[str, Any]) -> list[str]:
    """The options that bring its GPUs, and media devices, into its container.

    Raises: RefusedError `gpu-device`, when there is no device of a GPU of the run.
    """
    return _of_gpus(spec) + _of_media(spec)


def _of_media(spec: dict[str, Any]) -> list[str]:
    """Those of what is plugged in now, and leave to open what is plugged in later."""
    if not spec.get("has_media"):
        return []
    found, names = [], device_files.of_media(spec)
    for name in names:
        found += ["--device", os.path.join(device_files.DEVICES, name)]
    for group in groups_of(names):
        found += ["--group-add", str(group)]
    for major in device_files.media_majors():
        found += ["--device-cgroup-rule", "c %d:* rw" % major]
    return found


def _of_gpus(spec: dict[str, Any]) -> list[str]:
    asked = [str(one) for one in spec.get("gpu_uuids") or []]
    if not asked:
        return []
    if jetson.is_jetson() and any(map(_has_files, CDI_FOLDERS)):
        return ["--device", "nvidia.com/gpu=all"]
    names = device_files.of_its_gpus(_by_files(spec))
    found = []
    for name in names:
        found += ["--device", os.path.join(device_files.DEVICES, name)]
    for group in groups_of(names):
        found += ["--group-add", str(group)]
    for one in asked:
        if not _is_opened_by_files(one):
            found += ["--device", "nvidia.com/gpu=" + one]
    return found


def _by_files(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with those of its GPUs that are opened by their files alone."""
    asked = [str(one) for one in spec.get("gpu_uuids") or []]
    return {**spec, "gpu_uuids": [one for one in asked if _is_opened_by_files(one)]}


def _is_opened_by_files(uuid: str) -> bool:
    """Whether podman is given the files of the GPU, and not a name that describes them."""
    return jetson.is_jetson() or amd_gpus.is_named_so(uuid)


def _has_files(folder: str) -> bool:
    return os.path.isdir(folder) and bool(os.listdir(folder))
