"""A rented machine compared with what its marketplace offered: the host behind it may lie.

All that is compared, the machine says itself, and a host who alters more than the labels can forge
it. So this keeps away hosts that are broken, careless or lie cheaply. How fast the GPUs are is not
compared, because only work on them shows that.
"""

from datetime import timedelta

from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.nodes import Hardware
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name, is_same_model, model_of

DISTRUSTED_FOR = timedelta(days=7)
"""For how long a host is not rented from again, after its machine was not what it offered."""
SCOPE_DISTRUSTED_FOR = timedelta(hours=1)
"""For how long an offer is not taken again whose marketplace does not name the host."""
LEAST_SHARE = 0.85
"""The part of what was offered that a machine must have; a kernel and a driver keep some of it."""
LEAST_VRAM_SHARE = 0.88
"""GPUs with error correction show up to 7 % less than their model's memory."""
LEAST_DISK_MB_PER_S = 5
LEAST_CPU_MB_PER_S = 20
"""The slowest disk and CPU with which a machine is of use; few of today have a tenfold of it, and
none has less."""
LEAST_DISK_SPEED_SHARE = 0.05
"""The part of the disk speed that was offered; other customers of the host use the disk as well."""
GB = 1000**3
GIB = 1024**3
MIB = 1024**2


def unlike_offer(offer: MachineOffer, spec: MachineSpec, hardware: Hardware) -> str:
    """What of the offer the rented machine does not have, with what was found; empty: nothing."""
    return "; ".join(
        each
        for each in (
            _gpus(offer, hardware),
            _memory(offer, hardware),
            _disk(spec, hardware),
            *_speeds(offer, hardware),
        )
        if each
    )


def host_words(offer: MachineOffer) -> str:
    """Whom the distrust is for, in words."""
    return f"host {offer.host}" if offer.host else f"offer {offer.scope}"


def distrusted_for(offer: MachineOffer) -> timedelta:
    """For how long the host of the offer is not rented from, or the offer is not taken."""
    return DISTRUSTED_FOR if offer.host else SCOPE_DISTRUSTED_FOR


def _gpus(offer: MachineOffer, hardware: Hardware) -> str:
    if len(hardware.gpus) < offer.gpu_count:
        found = len(hardware.gpus) or "none"
        return f"was created with {offer.gpu_count}×{offer.gpu_type}, has {found}"
    if not offer.gpu_count or offer.gpu_type is None:
        return ""
    others = sorted({gpu_type_of_driver_name(gpu.name) for gpu in hardware.gpus})
    if not all(is_same_model(name, offer.gpu_type or "") for name in others):
        return f"was created with {offer.gpu_type}, has {', '.join(others)}"
    model = model_of(offer.gpu_type)
    shown = [gpu.memory_mib for gpu in hardware.gpus if gpu.memory_mib is not None]
    if model is None or not shown or min(shown) * MIB >= LEAST_VRAM_SHARE * model.memory_gb * GIB:
        return ""
    return (
        f"was created with {offer.gpu_type} of {model.memory_gb} GiB, "
        f"has {min(shown) / 1024:.1f} GiB a GPU"
    )


def _memory(offer: MachineOffer, hardware: Hardware) -> str:
    if hardware.memory_bytes >= LEAST_SHARE * offer.memory_bytes:
        return ""
    found = hardware.memory_bytes / GIB
    return f"was created with {offer.memory_bytes / GIB:.1f} GiB of memory, has {found:.1f}"


def _disk(spec: MachineSpec, hardware: Hardware) -> str:
    if not hardware.disk_bytes or hardware.disk_bytes >= LEAST_SHARE * spec.disk_size_gb * GB:
        return ""
    found = hardware.disk_bytes / GB
    return f"was created with {spec.disk_size_gb} GB of disk, has {found:.1f}"


def _speeds(offer: MachineOffer, hardware: Hardware) -> tuple[str, ...]:
    disk, cpu = hardware.disk_mb_per_s, hardware.cpu_mb_per_s
    least = max(LEAST_DISK_MB_PER_S, LEAST_DISK_SPEED_SHARE * offer.disk_mb_per_s)
    words = []
    if disk is not None and disk < least:
        words.append(f"its disk takes {disk} MB a second, asked {least:.0f}")
    if cpu is not None and cpu < LEAST_CPU_MB_PER_S:
        words.append(f"its CPU hashes {cpu} MB a second, asked {LEAST_CPU_MB_PER_S}")
    return tuple(words)
