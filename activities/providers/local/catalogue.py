"""What this host offers: its CPUs, and beside them all of its GPUs, if it has some."""

import os
import shutil
import subprocess

from activities.providers.base import Unavailable
from activities.providers.local.machines import PATH, ZONE
from workflows.contracts.machines import MachineOffer, RentalOffer
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name

GPU_LIMIT_S = 20


def local_offers(_: str) -> tuple[RentalOffer, ...]:
    """The rental offers of this host, of which one is taken at a time. All are free of charge.

    Raises: Unavailable, when its GPUs cannot be listed.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    offers = [MachineOffer(zone=ZONE, machine_type="this-host", microcredits_per_hour=0)]
    names = gpu_types()
    if names and len(set(names)) == 1:
        gpus = {"gpu_type": names[0], "gpu_count": len(names)}
        offers.append(offers[0].model_copy(update=gpus))
    cpu_count = len(os.sched_getaffinity(0))
    return tuple(
        RentalOffer(machine=offer, cpu_count=cpu_count, memory_bytes=memory_bytes)
        for offer in offers
    )


def gpu_types() -> list[str]:
    """The GPU types of this host, one for each GPU; none without the driver's tool.

    Raises: Unavailable, when the tool does not answer.
    """
    if (tool := shutil.which("nvidia-smi", path=f"{PATH}:/usr/lib/wsl/lib")) is None:
        return []
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        ran = subprocess.run(
            query, capture_output=True, text=True, check=False, timeout=GPU_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{tool}: {error}") from error
    if ran.returncode:
        return []
    return [gpu_type_of_driver_name(line) for line in ran.stdout.splitlines() if line.strip()]
