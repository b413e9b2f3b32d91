"""The requirements of a region, compared with the hardware that an inspection found."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from workflows.contracts.nodes import Disk, Gpu, Hardware, NodeRequest, Requirement
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name, is_sxm
from workflows.rules.counts import counted

TB = 1000**4
GIB = 1024**3
MIB = 1024**2

GPUS_ALIKE = "gpus-alike"
NVME_DRIVES = "nvme-drives"
TPM_2 = "tpm-2"
SATA_DRIVES = "sata-drives"
NETWORK_10_GB = "network-10gb"
MEMORY_PER_VRAM = "memory-per-vram"
PCIE_LANES = "pcie-lanes"
CORES_PER_GPU = "cores-per-gpu"
PEERS = "peers"
STORAGE_DISK = "storage-disk"

STORAGE = "storage"
"""The service of a storage node."""

ALL = "all"
"""The name that relaxes every requirement."""

NAMES: tuple[str, ...] = (
    GPUS_ALIKE,
    NVME_DRIVES,
    TPM_2,
    SATA_DRIVES,
    NETWORK_10_GB,
    MEMORY_PER_VRAM,
    PCIE_LANES,
    CORES_PER_GPU,
    PEERS,
    STORAGE_DISK,
)
"""Every name that a region may relax, beside `all`."""

RFC_1918 = tuple(IPv4Network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
"""The address ranges of private networks."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """One requirement before relaxation."""

    name: str
    required: str
    found: str
    met: bool


def evaluate(
    hardware: Hardware,
    *,
    public: bool,
    central_storage: bool,
    relaxed: Collection[str] = (),
    owned_at: str | None = None,
) -> tuple[Requirement, ...]:
    """The requirements of the region for this machine, each with what was found.

    owned_at: the address of an owner's machine; None: a leased machine, which its cloud connects
    with its peers.
    relaxed: names of `NAMES`, or `all`. A relaxed requirement that the machine does not meet passes
    with `relaxed` set; a requirement that the machine meets has it unset.
    """
    findings = [_gpus_alike(hardware), _nvme_drives(hardware), _tpm(hardware)]
    findings.append(_network(hardware) if central_storage else _sata_drives(hardware))
    if public and hardware.gpus:
        findings += [_memory(hardware), _pcie_lanes(hardware), _cores(hardware)]
    if owned_at is not None:
        findings.append(_private_address(hardware, owned_at))
    return tuple(_relaxed(finding, relaxed) for finding in findings)


def evaluate_storage(
    hardware: Hardware,
    *,
    central_storage: bool,
    relaxed: Collection[str] = (),
    owned_at: str | None = None,
) -> tuple[Requirement, ...]:
    """The requirements of a storage node: disk, network and its peers; nothing of GPUs or drives.

    The arguments are those of `evaluate`.
    """
    findings = [_storage_disk(hardware)]
    if central_storage:
        findings.append(_network(hardware))
    if owned_at is not None:
        findings.append(_private_address(hardware, owned_at))
    return tuple(_relaxed(finding, relaxed) for finding in findings)


def unknown_names(relaxed: Collection[str]) -> tuple[str, ...]:
    """The names that name no requirement, as they were given."""
    return tuple(name for name in relaxed if name != ALL and name not in NAMES)


def private_address(addresses: Iterable[str]) -> str | None:
    """The first of the addresses that is in a private network (RFC 1918); None: none is."""
    return next((each for each in addresses if _is_private(each)), None)


def _is_private(text: str) -> bool:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return False
    return any(address in network for network in RFC_1918)


def _relaxed(finding: _Finding, relaxed: Collection[str]) -> Requirement:
    spared = not finding.met and (finding.name in relaxed or ALL in relaxed)
    return Requirement(
        name=finding.name,
        required=finding.required,
        found=finding.found,
        passed=finding.met or spared,
        relaxed=spared,
    )


def _gpus_alike(hardware: Hardware) -> _Finding:
    types = Counter(gpu_type_of_driver_name(gpu.name) for gpu in hardware.gpus)
    found = ", ".join(f"{count}×{name}" for name, count in sorted(types.items())) or "no GPU"
    return _Finding(GPUS_ALIKE, "all GPUs of one model", found, len(types) <= 1)


def _nvme_drives(hardware: Hardware) -> _Finding:
    drives = [disk for disk in hardware.disks if disk.transport == "nvme"]
    needed_tb = -(-len(hardware.gpus) // 2)
    met = len(drives) >= 2 and _total(drives) >= needed_tb * TB
    required = f"2 NVMe drives or more, together {needed_tb} TB or more"
    return _Finding(NVME_DRIVES, required, _drives(drives, "NVMe"), met)


def _tpm(hardware: Hardware) -> _Finding:
    return _Finding(TPM_2, "TPM 2.0", "TPM 2.0" if hardware.tpm else "no TPM 2.0", hardware.tpm)


def _sata_drives(hardware: Hardware) -> _Finding:
    drives = [disk for disk in hardware.disks if disk.transport == "sata"]
    large = [disk for disk in drives if disk.size_bytes >= 2 * TB]
    required = "3 SATA drives or more of 2 TB or more each"
    return _Finding(SATA_DRIVES, required, _drives(drives, "SATA"), len(large) >= 3)


def _storage_disk(hardware: Hardware) -> _Finding:
    """The whole file system below the agent's folder, because the cache fills it in time."""
    found = f"{hardware.disk_bytes / TB:.2f} TB" if hardware.disk_bytes else "unknown"
    required = "a file system of 0.9 TB or more for the node's folder, as a disk of 1 TB has"
    return _Finding(STORAGE_DISK, required, found, hardware.disk_bytes >= 0.9 * TB)


def _network(hardware: Hardware) -> _Finding:
    speed = hardware.network_mbps
    found = "unknown" if speed is None else f"{speed:,} Mb/s"
    return _Finding(NETWORK_10_GB, "10,000 Mb/s or more", found, (speed or 0) >= 10_000)


def _memory(hardware: Hardware) -> _Finding:
    sizes = [gpu.memory_mib for gpu in hardware.gpus]
    vram_bytes = sum(size or 0 for size in sizes) * MIB
    required = f"{2 * vram_bytes / GIB:.1f} GiB or more, twice the VRAM"
    found = f"{hardware.memory_bytes / GIB:.1f} GiB"
    if None in sizes:
        required, found = "twice the VRAM", f"{found}, VRAM unknown"
    met = None not in sizes and hardware.memory_bytes >= 2 * vram_bytes
    return _Finding(MEMORY_PER_VRAM, required, found, met)


def _pcie_lanes(hardware: Hardware) -> _Finding:
    """The lanes of all GPUs but those on SXM boards, which have other links between them."""
    lanes = [gpu.pcie_lanes for gpu in hardware.gpus if not is_sxm(gpu.name)]
    required = "8 PCIe lanes or more a GPU (SXM aside)"
    if not lanes:
        return _Finding(PCIE_LANES, required, "all GPUs are SXM", met=True)
    found = f"{', '.join('unknown' if lane is None else str(lane) for lane in lanes)} lanes"
    return _Finding(PCIE_LANES, required, found, all((lane or 0) >= 8 for lane in lanes))


def _cores(hardware: Hardware) -> _Finding:
    """The physical cores; an inspection that did not count them counted threads."""
    each = max(_cores_for(gpu) for gpu in hardware.gpus)
    count, cores = len(hardware.gpus), hardware.core_count or hardware.cpu_count
    required = f"{each} cores or more a GPU, {each * count} for {count}"
    found = f"{counted(cores, 'core')} with {counted(hardware.cpu_count, 'thread')}"
    return _Finding(CORES_PER_GPU, required, found, cores >= each * count)


def _private_address(hardware: Hardware, owned_at: str) -> _Finding:
    """Whether the region's other nodes can reach the machine without leaving the site."""
    known = tuple(dict.fromkeys((owned_at, *hardware.addresses)))
    required = "a private address (RFC 1918), at which the other nodes of the region reach it"
    return _Finding(PEERS, required, ", ".join(known), private_address(known) is not None)


def _cores_for(gpu: Gpu) -> int:
    """The cores per GPU: two on PCIe 3, four from PCIe 4 on or if the generation is unknown."""
    return 2 if gpu.pcie_generation is not None and gpu.pcie_generation <= 3 else 4


def _total(drives: Collection[Disk]) -> int:
    return sum(disk.size_bytes for disk in drives)


def _drives(drives: Collection[Disk], kind: str) -> str:
    if not drives:
        return f"no {kind} drive"
    sizes = ", ".join(f"{disk.size_bytes / TB:.2f}" for disk in drives)
    return f"{counted(len(drives), f'{kind} drive')} of {sizes} TB"


def requirements_of(
    request: NodeRequest, hardware: Hardware, host: str | None
) -> tuple[Requirement, ...]:
    """Those of the node's services; a node that serves both must meet both.

    host: the address at which the node is reached.
    """
    relaxed = request.relaxed
    owned_at = None if request.is_leased else host
    found: dict[str, Requirement] = {}
    if request.services != (STORAGE,):
        compute = evaluate(
            hardware,
            public=request.public,
            central_storage=request.central_storage,
            relaxed=relaxed,
            owned_at=owned_at,
        )
        found |= {one.name: one for one in compute}
    if STORAGE in request.services:
        storage = evaluate_storage(
            hardware,
            central_storage=request.central_storage,
            relaxed=relaxed,
            owned_at=owned_at,
        )
        found |= {one.name: one for one in storage}
    return tuple(found.values())
