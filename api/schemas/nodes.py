"""The schemas of nodes, and of the announcements by which machines make themselves known."""

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResourceId, ResponseBody
from api.schemas.join_tokens import JoinSecret

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:%-]{0,252}[A-Za-z0-9])?|::[A-Fa-f0-9:]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")
_MINION_ID = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def _address(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("is an IP address or a host name")
    return text


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise ValueError("is the name of a user of the machine")
    return text


def _minion_id(text: str) -> str:
    if not _MINION_ID.fullmatch(text):
        raise ValueError("is the fingerprint of the SSH host key: SHA256: and 43 characters")
    return text


Address = Annotated[str, Field(max_length=254), AfterValidator(_address)]
Port = Annotated[int, Field(ge=1, le=65_535)]
UserName = Annotated[str, Field(max_length=33), AfterValidator(_user)]
MinionId = Annotated[str, Field(max_length=50), AfterValidator(_minion_id)]


def _not_ephemeral(kind: str) -> str:
    if kind != "permanent":
        raise ValueError("is permanent: the platform creates ephemeral nodes itself, for jobs")
    return kind


class AnnouncementCreation(RequestBody):
    token: JoinSecret
    """The join token: a new one, or the one that this machine has announced itself with."""
    minion_id: MinionId
    host_public_key: Annotated[str, Field(max_length=4096)]
    """The SSH host key as in an OpenSSH public key file: type and base64."""
    address: Address
    port: Port
    user: UserName = "root"


class AnnouncementReceipt(ResponseBody):
    minion_id: str
    address: str
    port: int
    user: str
    first_at: datetime
    last_at: datetime
    added: bool
    """Whether a node with this minion id has been added to the token's region already."""
    upnp: bool = True
    """Whether the machine may keep a port of its router mapped; false: its node was added so."""


class NodeCreation(RequestBody):
    region_id: ResourceId
    name: Name
    minion_id: MinionId | None = None
    """The minion id of a machine you own; a machine that is created in a cloud has none yet."""
    gpus: Annotated[str | None, Field(max_length=100)] = None
    """The GPUs of a machine to create in a cloud, such as `T4:1`.

    The machine runs and costs money until the node is removed.
    """
    disk_size_gb: Annotated[int, Field(ge=50, le=2000)] = 100
    """The disk size of a machine to create in a cloud."""
    type: Annotated[Literal["permanent", "ephemeral"], AfterValidator(_not_ephemeral)] = "permanent"
    services: Annotated[
        tuple[Literal["compute", "storage"], ...], Field(min_length=1, max_length=2)
    ] = ("compute",)
    upnp: bool = True
    """Whether the machine keeps the port that `join.sh` had its router map.

    False: it closes the port within 10 minutes, and announces its own address, so give an
    `address` and `port` by which the platform reaches it.
    """
    mining: bool = False
    address: Address | None = None
    """The address of the machine; None: the address that the machine announces."""
    port: Port = 22
    user: UserName = "root"


class NodeChange(RequestBody):
    """A change of a node; fields that are left out keep their values."""

    mining: bool | None = None
    """Whether the account's idle workload runs on the node while no job is there."""


class NodeIdleWorkload(ResponseBody):
    """What the node itself says of its idle workload, at most an hour old."""

    state: str
    """`off`, `waiting` for the node to be idle, or `running`."""
    run_s: float
    """For how long it has run on the machine in all."""
    energy_joules: float | None
    """What the GPUs have used meanwhile; null: their driver does not say."""
    energy_s: float
    """For how long of `run_s` the energy is known."""
    reason: str
    """Why it could not be started last; empty: it could."""
    at: datetime | None


class NodeReplacement(RequestBody):
    """A machine that you own, and that takes the place of a storage node."""

    name: Name
    minion_id: MinionId
    upnp: bool = True
    address: Address | None = None
    """The address of the machine; None: the address that the machine announces."""
    port: Port = 22
    user: UserName = "root"


class NodeRequirement(ResponseBody):
    name: str
    required: str
    found: str
    passed: bool
    relaxed: bool


class NodeDisk(ResponseBody):
    name: str
    size_bytes: int
    rotational: bool | None
    transport: str | None


class NodeHardware(ResponseBody):
    """The hardware of a node, as the inspection found it."""

    hostname: str
    os_name: str
    kernel: str
    python_version: str
    cpu_count: int
    core_count: int | None
    """The physical cores, of which each may have several CPUs; null: not counted."""
    cpu_model: str
    memory_bytes: int
    free_disk_bytes: int
    disk_bytes: int
    """The size of the file system of the agent's folder; 0: not inspected yet."""
    disks: list[NodeDisk]
    network_mbps: int | None
    tpm: bool
    is_root: bool
    runtimes: list[str]
    addresses: list[str]
    reboot_required: bool


class NodeGpu(ResponseBody):
    index: int
    name: str
    uuid: str
    memory_mib: int | None
    pcie_generation: int | None
    pcie_lanes: int | None
    driver_version: str | None
    job_id: str | None
    """The job that holds the GPU now, or has left it to the node (`leaving_allocations`)."""


class LeavingAllocation(ResponseBody):
    """What a run still holds whose job has ended, because nobody has seen the run end.

    The node ends the run, and frees the allocation when it has. No run outlives a restart of its
    machine.
    """

    id: str
    job_id: str
    worker: int
    attempt: int
    gpu_indices: list[int]
    cpu_count: int
    memory_bytes: int
    reserved_at: datetime


class NodePreparation(ResponseBody):
    job_user: str | None
    closed_logins: bool
    unreachable_peers: list[str]
    trusted_only_reason: str | None
    cache: str | None
    """host:port inside of the region at which a storage node serves the region's cache."""
    cache_is_secure: bool
    """Whether it speaks TLS, with a certificate of the region."""
    no_cache_reason: str | None
    """Why a storage node serves no cache."""
    nfs_way: str | None
    """How the node reaches NFS shares: `kernel`, `user-space` or `none`, and why."""
    smb_way: str | None
    """The same of SMB shares."""


class Node(Lifecycle):
    region_id: str
    minion_id: str
    """The minion id; empty until the machine that is leased for the node has been created."""
    leased: bool
    """Whether the node's machine is leased, see `/v1/leases`."""
    type: str
    services: list[str]
    fills_from: str | None
    """The storage node whose place this one takes, and from which it is filled; null: none."""
    upnp: bool
    mining: bool
    """Whether the account's idle workload runs on the node while no job is there."""
    idle_workload: NodeIdleWorkload | None
    """Null: the node never had one."""
    address: str | None
    port: int
    user: str
    gpu_type: str | None
    gpu_count: int
    cpu_count: int
    memory_bytes: int
    reserved_cpu_count: int
    reserved_memory_bytes: int
    hardware: NodeHardware | None
    requirements: list[NodeRequirement]
    preparation: NodePreparation | None
    gpus: list[NodeGpu]
    job_ids: list[str]
    """The jobs that hold an allocation on the node now."""
    leaving_allocations: list[LeavingAllocation]


class NodePage(Page[Node]):
    pass
