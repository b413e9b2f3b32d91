"""The GPUs that NVIDIA's driver lists, by its own tool `nvidia-smi`."""

from __future__ import annotations

import subprocess
from typing import Any

from ..errors import RefusedError

GPU_FIELDS = (
    "index",
    "name",
    "uuid",
    "memory.total",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "driver_version",
)
GPU_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"
NO_GPUS = 6
GPU_LIMIT_S = 60.0


def nvidia_smi() -> str | None:
    """The path of the driver's own tool; None when it is not installed."""
    # The import is slow, and runs start without it.
    import shutil  # noqa: PLC0415

    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=GPU_PATH)


def gpus() -> list[dict[str, Any]]:
    """The GPUs that the NVIDIA driver lists; empty when the driver is not installed.

    Raises: RefusedError `gpu-driver`, when the driver's tool fails.
    """
    tool = nvidia_smi()
    if tool is None:
        return []
    query = [tool, "--query-gpu=" + ",".join(GPU_FIELDS), "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=GPU_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError("gpu-driver", "nvidia-smi: %s" % error) from error
    if done.returncode == NO_GPUS:
        return []
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0:
        words = (text + "\n" + done.stderr.decode(errors="replace")).strip()
        raise RefusedError("gpu-driver", "nvidia-smi: exit %d: %s" % (done.returncode, words))
    return [_gpu(line) for line in text.splitlines() if line.strip()]


def _gpu(line: str) -> dict[str, Any]:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(GPU_FIELDS) or not fields[0].isdigit():
        raise RefusedError("gpu-driver", "nvidia-smi: %s" % line.strip())
    return {
        "index": int(fields[0]),
        "name": fields[1],
        "uuid": fields[2],
        "memory_mib": _number(fields[3]),
        "pcie_generation": _number(fields[4]),
        "pcie_lanes": _number(fields[5]),
        "driver_version": None if fields[6].startswith("[") else fields[6],
    }


def _number(text: str) -> int | None:
    """A number, or None for `[N/A]`, `[Not Supported]` and their like."""
    try:
        return int(float(text))
    except ValueError:
        return None
