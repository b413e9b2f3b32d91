"""Placement: pending jobs, offers, plans and refusals."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.base import Contract
from workflows.contracts.billing import UsageRates, disk_microcredits_per_hour
from workflows.contracts.machines import MachineOffer
from workflows.contracts.regions import GuestPolicy

GB = 1000**3


class SpotPolicy(StrEnum):
    """Whether a job may run on spot machines, which their cloud may preempt."""

    ALLOWED = "allowed"
    REQUIRED = "required"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that each worker of a job asks for."""

    gpu_types: tuple[str, ...] = ()
    """The accepted GPU types, by the canonical names of the catalogue; empty: no GPU."""
    gpu_count: int = 0
    cpu_count: int = 1
    memory_bytes: int = 0
    disk_size_gb: int = 10
    max_price_microcredits_per_gpu_hour: int = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Resources):
    """What a job asks of placement, without its identity: equal demands have equal answers.

    A dataclass with slots and no `Contract`, since a round reads its fields some hundred thousand
    times and a model's are several times slower to read.
    """

    account_id: str
    """The account that owns the project, whose machines count as owned."""
    project_id: str = ""
    """The project, if a region lets guests in by its id; it is not in the demand key."""
    worker_count: int = 1
    region_id: str | None = None
    providers: tuple[str, ...] = ()
    """The ids and kinds of the providers to choose from, the preferred ones first; empty: all."""
    only_owned: bool = False
    needs_image: bool = False
    needs_apt_packages: bool = False
    """Whether the job has Debian packages, for which its runs have roots of their own."""
    needs_confinement: bool = False
    """Whether it is the job of a federated job, whose runs are confined."""
    needs_attestation: bool = False
    """Whether the key of its model is released against an attestation of the node alone."""
    port: int | None = None
    reservation_id: str | None = None
    """The reservation that the job holds while it has allocations, alone of all jobs."""
    price_cap_microcredits_per_hour: int | None = None
    """The highest cost of all workers together; None: no cap."""
    has_credits: bool = True
    """Whether the payer has credits; without them the job takes only offers that cost nothing."""
    has_fee_credits: bool = True
    """Whether who pays the federated fee of the job, if there is one, has credits; without them the
    job takes no offer, because the fee is the same on all of them."""
    spot: SpotPolicy = SpotPolicy.ALLOWED
    fails_on_quota: bool = False
    """Whether the job fails when its best cloud offer is out of quota, instead of taking another
    offer."""

    volumes: tuple[tuple[str, VolumeAccess], ...] = ()
    """The volumes of the job by their ids, with the job's access to each."""
    has_secrets: bool = False
    """Whether the job has secrets or third-party keys that no stranger's machine may get."""
    data_bytes: int = 0
    """The disk that the datasets, the model, the checkpoints and the volumes of each worker take,
    as far as it was known at the submission."""

    @property
    def disk_bytes(self) -> int:
        return self.disk_size_gb * GB

    @property
    def data_size_gb(self) -> int:
        """The disk for data on a machine that has none of it, in whole GB."""
        return -(-self.data_bytes // GB)


class PendingJob(Contract):
    """A pending job: a job that waits for placement."""

    job_id: str
    project_id: str
    priority: int = 3
    """From 1, placed first, to 5, placed last, among the jobs of one account."""
    waiting_since: datetime
    """When the job was submitted or started again, which decides its position in the queue."""
    attempt: int
    demand: Demand
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDemand:
    """A pending demand: the pending jobs of one project with equal priorities and equal demands."""

    project_id: str
    demand_key: str
    """The key of the demand (see `demand_key`), by which its refusals are stored."""
    priority: int
    demand: Demand
    jobs: Iterable[PendingJob]
    """The jobs, first come first served; a planning round takes no more of them than fit, and one
    that does not."""


class GpuSlot(Contract):
    index: int
    uuid: str
    free: bool = True


class NodeOffer(Contract):
    """A node as an offer: its capacity, and how much of that is free now."""

    node_id: str
    region_id: str
    region_name: str = ""
    node_name: str = ""
    account_id: str
    provider_id: str = ""
    provider_kind: str
    public: bool = False
    active: bool = True
    gpu_type: str | None = None
    """The canonical name of the catalogue, or the driver's name without an entry there."""
    gpus: tuple[GpuSlot, ...] = ()
    cpu_count: int
    free_cpu_count: int
    memory_bytes: int
    free_memory_bytes: int
    free_disk_bytes: int
    disk_bytes: int = 0
    """All disks of the node together; 0: its inspection has found none."""
    used_ports: tuple[int, ...] = ()
    runtimes: tuple[str, ...] = ("process",)
    trusted_only: bool = False
    allows_apt_packages: bool = False
    """Whether Debian packages of jobs are installed on the node itself, where they stay."""
    has_run_roots: bool = True
    """Whether a run can have a root of its own there, which its Debian packages are in."""
    no_confinement_reason: str | None = None
    """Why the node can confine no run of a federated job; None: nothing is known against it."""
    no_attestation_reason: str | None = None
    """Why the node proves nothing of what it runs; None: nothing is known against it."""
    microcredits_per_gpu_hour: int = 0
    microcredits_per_cpu_core_hour: int = 0
    market_microcredits_per_gpu_hour: int | None = None
    """The market price, which other accounts pay; None: they get no GPU of the node."""
    guest_policy: GuestPolicy = GuestPolicy()
    guests_now: bool = True
    """Whether the present hour is one at which the region takes guests."""
    guest_gpu_count: int = 0
    """The GPUs that guests hold in the whole region."""
    preferred: bool = False
    """Whether the provider comes before all others, because its credits are used first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGuest:
    """A guest's worker on a node whose region's policy lets guests be pre-empted."""

    job_id: str
    node_id: str
    gpu_count: int
    cpu_count: int
    memory_bytes: int
    since: datetime
    noticed: bool = False
    """Whether it has its notice already, so that its resources become free."""


class CloudOffer(Contract):
    """A cloud offer: one machine type of an account's cloud region at one price, in any zone."""

    offer_id: str
    region_id: str
    region_name: str
    cloud_region: str
    account_id: str
    provider_id: str
    provider_kind: str
    machine_type: str
    gpu_type: str | None = None
    gpu_count: int = 0
    cpu_count: int
    memory_bytes: int
    spot: bool
    zones: tuple[MachineOffer, ...]
    """The machine offers in the order in which they are tried, at prices without boot disks."""
    microcredits_per_hour: int
    """The price of the machine from a dated price list, which the cloud bills to the account. The
    boot disk, whose size depends on the job, is not included."""
    disk_microcredits_per_gb_month: int = 0
    price_read_on: date | None = None
    """The day of the price list."""
    read_at: datetime | None = None
    """When a marketplace was asked for its offers; None: the offer is of a cloud's price list."""
    most_disk_gb: int | None = None
    """The largest disk that the machine can have; None: any that a job asks for."""
    fee: UsageRates
    """The usage fee of one worker, which the platform bills beside the price of the machine."""

    def disk_microcredits_per_hour(self, disk_size_gb: int) -> int:
        """Microcredits per hour of a boot disk of that size."""
        return disk_microcredits_per_hour(disk_size_gb, self.disk_microcredits_per_gb_month)


class WorkerSlot(Contract):
    worker: int
    node_id: str
    gpu_indices: tuple[int, ...] = ()


class Assignment(Contract):
    """The assignment of all workers of one job, allocated together."""

    job_id: str
    slots: tuple[WorkerSlot, ...]


class Burst(Contract):
    """The burst of one job: each worker has a machine created for it, of the same cloud offer
    unless that is one machine."""

    job_id: str
    offer_id: str
    zones: tuple[MachineOffer, ...]
    """The machine offers without a known shortage, in the order in which they are tried."""
    others: tuple["Burst", ...] = ()
    """For the second worker and the next ones, where an offer is one machine; else empty."""

    def of_worker(self, worker: int) -> "Burst":
        """The burst with the offer of this worker."""
        return self.others[worker - 1] if worker and self.others else self


class Refusal(Contract):
    """The refusal of one offer for one job: a stable code, and a sentence with numbers."""

    offer_id: str
    """The id of the node, cloud offer or region; `none` if there is no offer at all."""
    region_id: str | None = None
    code: str
    """Of nodes: `inactive`, `not-owned`, `wrong-region`, `gpu-type`, `gpu-count`, `cpu`, `memory`,
    `disk`, `price`, `credits`, `image`, `port`, `provider`, `workers`, `reserved`, `apt-packages`,
    `confinement`, `attestation`, `no-offers`. Of nodes of other accounts also: `not-sold`,
    `containers`, `owner-first`, `guest-hours`, `guest-limit`.
    `volume`: another job has a volume of this one, wherever there is room. Of
    reservations: `reservation`, which another job holds.
    Of clouds also: `untrusted`, `cpu-only`, `spot`, `shortage`, `quota`. `being-made`: the offer is
    taken, and its machine is being created. `machine`: the creation of its machine has failed.
    `no-planner`: no process plans placements."""
    detail: str
    ever: bool = True
    """Whether free capacity may end the refusal; False: the node is too small or lacks the GPU
    type."""


class JobRefusals(Contract):
    """The refusals of all offers for one job."""

    job_id: str
    refusals: tuple[Refusal, ...]


class DemandRefusals(Contract):
    """The refusals of all offers for the jobs of one project with equal demands."""

    project_id: str
    demand_key: str
    refusals: tuple[Refusal, ...]


class Plan(Contract):
    """The plan of a planning round."""

    assignments: tuple[Assignment, ...] = ()
    bursts: tuple[Burst, ...] = ()
    refused: tuple[DemandRefusals, ...] = ()
    failed: tuple[JobRefusals, ...] = ()
    """The jobs that fail for these refusals instead of waiting."""
    preempted: tuple[str, ...] = ()
    """The guests that are given notice, for jobs of their nodes' owners that wait."""
    withdrawn: tuple[str, ...] = ()
    """The guests whose notice is withdrawn, because no job of their nodes' owners needs it."""


class PlanningRound(Contract):
    """The result of one planning round, in numbers."""

    placed: int = 0
    waiting: int = 0
    more: bool = False
    """Whether the round has placed as many jobs as it may and others wait, so that the next one
    starts at once."""


class RankedOffer(Contract):
    """An offer that fits now: a node with free slots, or a cloud offer for each worker."""

    offer_id: str
    """The id of the node or of the cloud offer."""
    node_name: str = ""
    region_id: str
    region_name: str = ""
    provider_id: str = ""
    """The provider; empty: it is another account's."""
    provider_kind: str
    owned: bool
    gpu_type: str | None = None
    gpu_count: int = 0
    free_gpu_count: int = 0
    cpu_count: int
    free_cpu_count: int
    memory_bytes: int
    free_memory_bytes: int
    workers_that_fit: int
    preferred: bool = False
    """Whether the offer is of a provider whose credits are to be used first."""
    microcredits_per_gpu_hour: int = 0
    microcredits_per_hour: int = 0
    """The cost of one worker while it runs; for a cloud offer, with its machine."""
    machine_type: str | None = None
    """The machine type of a cloud offer; None: the offer is a node."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    """The zones in the order in which they would be tried."""
    price_is_estimate: bool = False
    """Whether the price is from a dated price list; the cloud's own bill counts."""
    price_read_on: date | None = None
    """The day of the price list."""
    read_at: datetime | None = None
    """When a marketplace was asked for the offer; None: it is of no marketplace."""


class Ranking(Contract):
    """The offers for one demand in the order of placement, and the refusals of all others."""

    placeable: bool
    """Whether all workers fit at this moment."""
    items: tuple[RankedOffer, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class PlacementRequest(Contract):
    """Input of `placement`."""
