"""The rows of the model: plain objects with the columns of activities/db/tables/*.py.

JSON columns hold the frozen contracts themselves. A row is written by `Tables.change` alone.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from workflows.contracts.base import Contract
from workflows.contracts.billing import UsageRates, WorkerUsage
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import JobEnding, WorkerProgress
from workflows.contracts.leases import ReleaseProgress
from workflows.contracts.lifecycles import (
    DATASET,
    DATASTORE,
    JOB,
    LEASE,
    NODE,
    PROVIDER,
    REGION,
    LifecycleNoun,
)
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import Hardware, Preparation, Requirement
from workflows.contracts.placement import Refusal
from workflows.contracts.providers import Check, CloudResource
from workflows.contracts.statuses import AllocationState


@dataclass(slots=True, kw_only=True)
class Account:
    id: str
    name: str
    project_id: str
    job_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class LifecycleRow:
    """As activities/db/tables/columns.py:LifecycleRow."""

    noun: ClassVar[LifecycleNoun]
    id: str
    account_id: str
    name: str
    created_at: datetime
    updated_at: datetime
    status: str = "new"
    status_reason: str | None = None
    sequence: int = 0
    recorded_run_id: str = ""
    recorded_history_length: int = 0


@dataclass(slots=True, kw_only=True)
class RemovableRow(LifecycleRow):
    removal_requested_at: datetime | None = None
    removal_force: bool = False
    removal_requested_by: str | None = None
    removal_reschedules: bool = False


@dataclass(slots=True, kw_only=True)
class Provider(RemovableRow):
    noun: ClassVar[LifecycleNoun] = PROVIDER
    kind: str
    checks: tuple[Check, ...] = ()
    resources: tuple[CloudResource, ...] | None = None
    reconciled_at: datetime | None = None
    has_key: bool = False
    fee_waived: bool = False


@dataclass(slots=True, kw_only=True)
class Region(RemovableRow):
    noun: ClassVar[LifecycleNoun] = REGION
    provider_id: str
    provider_kind: str
    storage_mode: str = "local"
    cloud_region: str | None = None
    storage_node_class: str | None = None
    public: bool = False
    exclusive_nodes: bool = True
    uses_internal_addresses: bool = False
    node_root: str | None = None
    own_worker: bool = False
    allows_apt_packages: bool = False
    relaxed_requirements: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Datastore(RemovableRow):
    noun: ClassVar[LifecycleNoun] = DATASTORE
    region_id: str
    has_password: bool = False
    way: str | None = None


@dataclass(slots=True, kw_only=True)
class Node(RemovableRow):
    noun: ClassVar[LifecycleNoun] = NODE
    region_id: str
    minion_id: str
    type: str = "permanent"
    services: tuple[str, ...] = ("compute",)
    machine: MachineClaim | None = None
    host: str | None = None
    port: int = 22
    user: str = "root"
    fills_from: str | None = None
    hardware: Hardware | None = None
    requirements: tuple[Requirement, ...] = ()
    preparation: Preparation | None = None
    gpu_type: str | None = None
    gpu_count: int = 0
    cpu_count: int = 0
    memory_bytes: int = 0
    wanted_status: str | None = None
    wanted_revision: int = 0
    seen_revision: int = 0
    reserved_cpu_count: int = 0
    reserved_memory_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Lease(LifecycleRow):
    noun: ClassVar[LifecycleNoun] = LEASE
    region_id: str
    provider_id: str
    provider_kind: str
    holder_id: str
    offers: tuple[MachineOffer, ...]
    spec: MachineSpec
    deadline: datetime
    price_cap_microcredits_per_hour: int | None = None
    offer: MachineOffer | None = None
    provider_machine_id: str | None = None
    host: str | None = None
    port: int = 22
    user: str = "root"
    minion_id: str | None = None
    microcredits_per_hour: int | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    earlier_microcredits: int = 0
    ending: ReleaseProgress | None = None


@dataclass(slots=True, kw_only=True)
class Job(LifecycleRow):
    noun: ClassVar[LifecycleNoun] = JOB
    project_id: str
    type: str
    spec: JobSubmission
    demand_key: str
    waiting_since: datetime
    priority: int = 3
    attempt: int = 1
    restarts: int = 0
    retries: int = 0
    retry_at: datetime | None = None
    federated_id: str | None = None
    ran_s: int = 0
    ending: JobEnding | None = None
    unsettled: tuple[WorkerUsage, ...] | None = None
    workers: tuple[WorkerProgress, ...] = ()
    placement_refusals: tuple[Refusal, ...] = ()
    rates: dict[int, UsageRates] | None = None
    gpu_seconds: int = 0
    charged_microcredits: int = 0
    output_bytes: int | None = None
    log_bytes: int | None = None
    state_bytes: int | None = None
    delivery_status: str | None = None
    data_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Dataset(RemovableRow):
    noun: ClassVar[LifecycleNoun] = DATASET
    project_id: str
    source: dict[str, str]
    content_sha256: str | None = None
    size_bytes: int | None = None
    unpacked_bytes: int | None = None
    file_count: int | None = None
    bytes_transferred: int = 0
    total_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class Allocation:
    id: str
    job_id: str
    worker: int
    attempt: int
    node_id: str
    cpu_count: int
    memory_bytes: int
    gpu_indices: tuple[int, ...]
    port: int | None
    created_at: datetime
    state: AllocationState = AllocationState.HELD
    rates: UsageRates | None = None
    notified_at: datetime | None = None
    released_at: datetime | None = None

    @property
    def is_unconfirmed(self) -> bool:
        """As activities/placement/allocation_states.py."""
        return self.state in (AllocationState.HELD, AllocationState.NOTIFIED)

    @property
    def is_of_job(self) -> bool:
        return self.released_at is None and self.state is not AllocationState.LEAVING

    @property
    def is_leaving(self) -> bool:
        return self.released_at is None and self.state is AllocationState.LEAVING


MeterKey = tuple[str, int, int]
"""Job, worker, attempt."""


@dataclass(slots=True, kw_only=True)
class UsageMeter:
    job_id: str
    worker: int
    attempt: int
    payer_id: str
    rates: UsageRates
    microcredits_per_hour: int
    running: bool
    started_at: datetime
    posted_s: int = 0
    posted_microcredits: int = 0
    credits_used_up_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class OutboxRow:
    id: str
    resource_id: str
    verb: str
    argument: Contract | None
    created_at: datetime
    is_removal: bool = False
    """Of a `start`: its argument is `{"removal": true}`."""
    delivered_at: datetime | None = None
    attempts: int = 0
    next_attempt_at: datetime | None = None
    refused_since: datetime | None = None
    parked_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class EventRow:
    resource_id: str
    sequence: int
    index: int
    type: str
    message: str
    at: datetime
    level: int = 0
    """Of a warning of a runway."""


@dataclass(slots=True, kw_only=True)
class Announced:
    """What a machine has said last of where it is, as a bound join token keeps it."""

    minion_id: str
    host: str
    at: datetime
