"""Machines: their address, what inspection finds, what a region asks of them."""

from datetime import datetime
from enum import StrEnum

from workflows.contracts.base import Contract
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import NodeStatus, NodeType


class NodeAddress(Contract):
    """Where and as whom a node is reached, and the key that proves it is that node."""

    node_id: str
    region_id: str
    host: str
    port: int
    user: str = "root"
    minion_id: str
    """`SHA256:…` fingerprint of the SSH host key; the connection is refused when it differs."""
    root: str | None = None
    """The agent's folder on the node; None: the node's own default."""


class Gpu(Contract):
    index: int
    name: str
    """As the driver prints it, such as `NVIDIA A100-SXM4-80GB`."""
    uuid: str
    memory_mib: int | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    driver_version: str | None = None


class Disk(Contract):
    name: str
    size_bytes: int
    rotational: bool | None = None
    transport: str | None = None
    """`nvme`, `sata`, `sas`, `usb` or None where the kernel does not say."""


class Hardware(Contract):
    """What inspection found on the machine."""

    hostname: str = ""
    os_name: str = ""
    kernel: str = ""
    python_version: str = ""
    cpu_count: int
    cpu_model: str = ""
    memory_bytes: int
    free_disk_bytes: int = 0
    disks: tuple[Disk, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    network_mbps: int | None = None
    tpm: bool = False
    is_root: bool = False
    runtimes: tuple[str, ...] = ("process",)
    addresses: tuple[str, ...] = ()
    reboot_required: bool = False
    boot_id: str = ""
    """Changes with each boot of the machine."""


class Requirement(Contract):
    """One demand of the region on a node, and what was found. Relaxed ones pass, and say so."""

    name: str
    required: str
    found: str
    passed: bool
    relaxed: bool = False


class Preparation(Contract):
    """What preparing left on the node."""

    job_user: str | None = None
    """The unprivileged user that jobs run as; None: they run as the log-in user."""
    closed_logins: bool = False
    unreachable_peers: tuple[str, ...] = ()
    cache: str | None = None
    """host:port at which it serves its region's cache, inside of the region; None: it does not."""
    no_cache_reason: str | None = None
    """Why it does not although it was to."""
    trusted_only_reason: str | None = None
    """Why jobs cannot be kept apart from each other here; None: they can."""


class NodeRequest(Contract):
    """Input of `node/{id}`."""

    node_id: str
    account_id: str
    region_id: str
    name: str
    minion_id: str
    """Empty until a machine that is leased for it has been made."""
    type: NodeType = NodeType.PERMANENT
    services: tuple[str, ...] = ("compute",)
    machine: MachineClaim | None = None
    """The machine that is leased for it; None: its owner has it."""
    host: str | None = None
    port: int = 22
    user: str = "root"
    root: str | None = None
    exclusive: bool = True
    """The machine serves the platform alone: other log-ins are closed."""
    public: bool = False
    central_storage: bool = False
    relaxed_requirements: tuple[str, ...] = ()
    sequence: int = 0
    """The last sequence that was recorded, where an earlier run of this workflow wrote it."""
    resumed_from: "NodeProgress | None" = None

    @property
    def relaxed(self) -> tuple[str, ...]:
        """The requirements that it need not meet: all of them, where it was made as it was asked
        for."""
        return self.relaxed_requirements if self.machine is None else ("all",)


class NodeProgress(Contract):
    """What a node's workflow takes along when it continues as new."""

    sequence: int
    status: NodeStatus
    resume_status: NodeStatus
    host: str
    port: int
    user: str
    root: str | None
    boot_id: str = ""
    inspected_boot_id: str = ""
    minion_id: str = ""
    """Of the machine that it had; empty: the request says it."""
    lease_id: str = ""


class NodeReport(Contract):
    node_id: str
    status: NodeStatus
    status_reason: str | None = None


class NodeNotice(StrEnum):
    """What the jobs on a node are notified of."""

    UNREACHABLE = "unreachable"
    """It cannot be reached, and may be healthy."""
    REACHABLE = "reachable"
    MACHINE_GONE = "machine-gone"
    """Its machine has ended, and what ran there with it: it never comes back."""
    REMOVED = "removed"
    """It is being removed: jobs must end."""
    REMOVED_UNREACHABLE = "removed-unreachable"
    """It is being removed and cannot be reached any more: nothing can be ended there."""


class Announcement(Contract):
    """A machine making itself known: its address and the key that it claims."""

    minion_id: str
    host: str
    port: int
    user: str = "root"


class Activate(Contract):
    """A person lets the node take jobs."""


class Maintain(Contract):
    """A person keeps new jobs away; those that run go on."""


class Reboot(Contract):
    """A person restarts the machine; with jobs on it only when forced: they end with it."""

    force: bool = False


class RunSeen(Contract):
    """What a node said of a command that no live job claims."""

    run_id: str
    job_id: str
    worker: int
    attempt: int
    elapsed_s: float
    started_at: datetime | None = None


class WatchEnded(Contract):
    """Why the watch of a node returned without an error: it is begun anew."""

    reason: str = "renewed"
