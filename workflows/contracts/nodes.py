"""Nodes: their address, hardware, requirements and preparation, their signals and progress."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract, Seconds
from workflows.contracts.events import NodeEvent
from workflows.contracts.hosts import HostEvents, HostProgress, HostRequest
from workflows.contracts.leases import MachineLost
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import NodeStatus, NodeType

NODE_EVENTS = HostEvents.of(NodeEvent)


class NodeAddress(Contract):
    """The node address: host, port and user, and the minion id that proves the node's identity."""

    node_id: str
    """The id of a node or of a device."""
    region_id: str
    host: str
    port: int
    user: str = "root"
    minion_id: str
    """`SHA256:…` fingerprint of the SSH host key; a machine with another key is refused."""
    root: str | None = None
    """The agent's folder on the node; None: the default of the agent."""
    own_worker: bool = False
    """Whether a worker process in the region's own network reaches the node, and no other."""
    leased: bool = False
    """Whether the platform has created the machine, so that nobody has to prove whose it is."""
    has_own_key: bool = False
    """Whether the machine lets in a key of its own, which no other machine does; else its region's
    key."""
    is_stated: bool = False
    """Whether somebody outside states the address of a leased machine, so that it must be in a
    network where nodes may be."""


class Gpu(Contract):
    """A GPU of either maker, NVIDIA or AMD, as an inspection found it."""

    index: int
    """The number of the GPU on its machine, which counts the GPUs of both makers."""
    name: str
    """The name that the driver prints, such as `NVIDIA A100-SXM4-80GB`."""
    uuid: str
    memory_mib: int | None = None
    """The memory of the GPU; that of the machine on a Jetson, which has no other."""
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    driver_version: str | None = None


class Disk(Contract):
    name: str
    size_bytes: int
    rotational: bool | None = None
    transport: str | None = None
    """`nvme`, `sata`, `sas` or `usb`; None: the kernel does not say."""


class Jetson(Contract):
    """What a Jetson says of itself beside its hardware; the release, the mode and the sensors are
    None or empty where it does not say them."""

    model_text: str
    """The name of the board in the device tree, such as `NVIDIA Jetson AGX Orin Developer Kit`."""
    compatible: tuple[str, ...] = ()
    """The names of board and processor in the device tree, most special first."""
    l4t_release: str | None = None
    """The release of Linux for Tegra, such as `R35.4.1`."""
    jetpack: str | None = None
    """The version of JetPack, such as `5.1.2`: of its package, or else by the release."""
    power_mode: str | None = None
    """The name of the power mode, such as `MAXN` or `15W`."""
    temperatures_c: dict[str, float] = Field(default_factory=dict)
    """The temperatures by the name of the sensor, in degrees Celsius."""
    gpu_load: int | None = None
    """The load of the GPU at the inspection, in percent."""


class Hardware(Contract):
    """The hardware and software of a machine, as an inspection found them."""

    hostname: str = ""
    os_name: str = ""
    kernel: str = ""
    python_version: str = ""
    cpu_count: int
    """The CPUs that the kernel schedules: threads, where a core has several."""
    core_count: int | None = None
    """The physical cores; None: the inspection did not count them."""
    cpu_model: str = ""
    memory_bytes: int
    free_disk_bytes: int = 0
    disk_bytes: int = 0
    """The size of the file system of the agent's folder; 0: an earlier inspection did not tell."""
    disk_mb_per_s: int | None = None
    """How fast the agent's folder takes bytes, in a short trial; None: it was not tried."""
    cpu_mb_per_s: int | None = None
    """How fast one CPU computes SHA-256, in a short trial; None: it was not tried."""
    disks: tuple[Disk, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    network_mbps: int | None = None
    tpm: bool = False
    is_root: bool = False
    runtimes: tuple[str, ...] = ("process",)
    addresses: tuple[str, ...] = ()
    reboot_required: bool = False
    boot_id: str = ""
    """The boot id, which changes with each boot of the machine."""
    jetson: Jetson | None = None
    """What the machine says as a Jetson; None: it is none."""


class Requirement(Contract):
    """One requirement of a region, with what was found on the node.

    A relaxed requirement that the node does not meet passes, and `relaxed` says so.
    """

    name: str
    required: str
    found: str
    passed: bool
    relaxed: bool = False


class Preparation(Contract):
    """The result of a node's preparation."""

    job_user: str | None = None
    """The unprivileged user that jobs run as; None: jobs run as the login user."""
    closed_logins: bool = False
    unreachable_peers: tuple[str, ...] = ()
    cache: str | None = None
    """host:port inside the region at which the node serves the region cache; None: it does not."""
    cache_is_secure: bool = False
    """Whether the region cache is served over TLS, with a certificate of the region."""
    no_cache_reason: str | None = None
    """Why a node that should serve the region cache does not."""
    trusted_only_reason: str | None = None
    """Why jobs cannot be isolated from each other on this node; None: they can."""
    no_run_root_reason: str | None = None
    """Why no run can have a root of its own on this node, with Debian packages; None: it can, or
    the login user is not root."""
    no_confinement_reason: str | None = None
    """Why the node can confine no run of a federated job; None: it can, or an earlier release has
    not looked. Hearsay: the node gets no such job by it, and never one that it would not get."""
    no_attestation_reason: str | None = None
    """Why the node proves nothing of what it runs; None: it may, or an earlier release has not
    looked. The same hearsay; what a node proves is checked when a key is released."""
    has_console: bool = False
    """Whether the machine has a console that shows the status of its node."""
    nfs_way: str | None = None
    """How the node reaches NFS shares: by the kernel, in user space, or not, and why; None: an
    earlier release has not looked."""
    smb_way: str | None = None
    """The same of SMB shares."""


class IdleWorkloadState(StrEnum):
    """What the idle workload of a node does."""

    OFF = "off"
    WAITING = "waiting"
    """It is switched on, and a run is on the machine or was a moment ago."""
    RUNNING = "running"


class IdleWorkloadFacts(Contract):
    """What a node says of its idle workload; it is hearsay, and decides nothing."""

    state: IdleWorkloadState
    run_s: Seconds
    """For how long it has run on the machine in all."""
    energy_joules: float | None = None
    """What the GPUs have used meanwhile; None: their driver does not say."""
    energy_s: Seconds = 0.0
    """For how long of it the energy is known."""
    reason: str = ""
    """Why it could not be started last; empty: it could."""
    at: datetime | None = None
    """When the node has said it."""


class IdleWorkloadReported(Contract):
    """What a node has said of its idle workload while it was watched."""

    revision: str
    """Of the workload that is switched on there."""
    facts: IdleWorkloadFacts


class NodeRequest(HostRequest):
    """Input of `node/{id}`."""

    node_id: str
    type: NodeType = NodeType.PERMANENT
    services: tuple[str, ...] = ("compute",)
    machine: MachineClaim | None = None
    """The claim of a leased machine; None: the machine belongs to its owner."""
    public: bool = False
    central_storage: bool = False
    resumed_from: "NodeProgress | None" = None

    @property
    def host_id(self) -> str:
        return self.node_id

    @property
    def noun(self) -> str:
        return "node"

    @property
    def events(self) -> HostEvents:
        return NODE_EVENTS

    @property
    def is_leased(self) -> bool:
        return self.machine is not None

    @property
    def has_own_key(self) -> bool:
        return self.machine is not None and self.machine.spec.has_own_key

    @property
    def leased_from(self) -> str:
        return "" if self.machine is None else self.machine.provider_kind

    @property
    def relaxed(self) -> tuple[str, ...]:
        """Requirements that are waived. Leased machines waive all: they were created to
        specification."""
        return ("all",) if self.is_leased else self.relaxed_requirements

    @property
    def progress(self) -> "NodeProgress | None":
        return self.resumed_from


class NodeProgress(HostProgress):
    """The progress of a node, for the next workflow run at continue-as-new or after a restart."""

    status: NodeStatus
    resume_status: NodeStatus
    end_tries: dict[str, int] = Field(default_factory=dict)
    """The orphaned runs that could not be ended yet, each with the number of tries."""
    unheld_runs: tuple[str, ...] = ()
    """Those of them whose GPUs no allocation holds, so that the node takes no jobs."""
    unlisted: str | None = None
    """Why nothing is known yet of the runs on the machine of a new node; None: it is."""
    lease_id: str = ""
    tidy_at: datetime | None = None
    """When the node is tidied next; None: one interval after the start of its watch."""
    tries_left: int = 0
    """How often the node may still try to get another machine; 0: it was never in use."""
    lost: MachineLost | None = None
    """The loss of the node's machine, of which the node may not have heard; None: none."""
    releasing: str | None = None
    """Why the node's leases are being released, whose machines may still be there; None: they are
    not."""
    ended_by: str | None = None
    """Why the node removes itself; None: it does not."""
    idle_workload: str | None = None
    """The revision of the idle workload that is switched on, empty when none is; None: unknown."""
    shown_status: NodeStatus | None = None
    """The status that the console of its machine shows; None: none, or it is not known."""


class NodeReport(Contract):
    node_id: str
    status: NodeStatus
    status_reason: str | None = None


class NodeNotice(StrEnum):
    """The node notice: what a node tells the jobs on it."""

    UNREACHABLE = "unreachable"
    """The node cannot be reached, and may be healthy."""
    REACHABLE = "reachable"
    ENDING = "ending"
    """The node ends as planned and can still be reached; its jobs leave it and are rescheduled."""
    MACHINE_GONE = "machine-gone"
    """The node's machine has ended with all its runs, and does not return."""
    PROTOCOL_VIOLATED = "protocol-violated"
    """The node's machine has broken the agent's protocol, so nobody believes its runs any more."""
    REMOVED = "removed"
    """The node is being removed, and its jobs must end."""
    REMOVED_UNREACHABLE = "removed-unreachable"
    """The node is being removed and is unreachable, so runs there cannot be ended."""


class ProtocolViolation(Contract):
    """Signal `protocol_violated`: a job's effect on the node has met a protocol violation.

    minion_id: of the machine, which may not be the node's any more.
    """

    minion_id: str
    reason: str


class Reboot(Contract):
    """A message of a person: restart the machine.

    force: restart although jobs run there, which ends them.
    """

    force: bool = False


@dataclass(frozen=True)
class NodeAction:
    """An action on a node that a person requests: its route, its checks and its command.

    name: the last part of the URL, the client's command, and the signal of an action without a
    status.
    """

    name: str
    operation_id: str
    summary: str
    status: NodeStatus | None = None
    """The wanted status that the action sets; None: the action is a message."""
    message: type[Contract] | None = None
    """Of the signal; with a field `force`, a node with jobs needs force."""
    allowed: tuple[NodeStatus, ...] = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE)
    allowed_leased: tuple[NodeStatus, ...] = ()
    """More statuses in which a node with a leased machine allows the action."""

    @property
    def verb(self) -> str:
        return self.operation_id.partition("_")[0]

    @property
    def takes_force(self) -> bool:
        return self.message is not None and "force" in self.message.model_fields


NODE_ACTIONS = (
    NodeAction(
        "activate",
        "activate_node",
        "Activate a node in maintenance, so that it takes jobs.",
        status=NodeStatus.ACTIVE,
        allowed_leased=(NodeStatus.FAILED,),  # It got no machine, and gets another one.
    ),
    NodeAction(
        "maintenance",
        "maintain_node",
        "Put a node in maintenance: it takes no new jobs, and its running jobs go on.",
        status=NodeStatus.MAINTENANCE,
    ),
    NodeAction(
        "reboot",
        "reboot_node",
        "Reboot a node's machine; a node with jobs only with `force`, which ends the jobs.",
        message=Reboot,
    ),
)


class RunSeen(Contract):
    """An orphaned run, as its node reported it."""

    run_id: str
    job_id: str
    worker: int
    attempt: int
    elapsed_s: Seconds
    started_at: datetime | None = None
    """By the node's wall clock, as `finished_at`."""
    finished_at: datetime | None = None
    alive: str = ""
    """What of the run could not be ended; empty: the run has ended."""


class EarlierRun(Contract):
    """A run that an earlier node of the machine has left there, and that could not be ended.

    Its name is not one of the node's, so nobody is charged for what the machine says of it.
    """

    name: str
    """The name of the run on the machine."""
    alive: str
    """What of the run is still alive."""


class LeavingRun(Contract):
    """A run with a leaving allocation: its job has ended, and nobody has seen the run end."""

    run_id: str
    gpu_indices: tuple[int, ...] = ()


class WatchEnded(Contract):
    """The end of a node's watch without an error; the node starts another watch."""

    reason: str = "renewed"
