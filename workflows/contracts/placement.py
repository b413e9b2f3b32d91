"""Placement: what waits, what is there, what was decided and why not."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from workflows.contracts.base import Contract
from workflows.contracts.billing import UsageRates, disk_microcredits_per_hour
from workflows.contracts.machines import MachineOffer

GB = 1000**3


class SpotPolicy(StrEnum):
    """Whether a job may run on machines that their cloud takes away when it wants them back."""

    ALLOWED = "allowed"
    REQUIRED = "required"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What each worker of a job asks for."""

    gpu_types: tuple[str, ...] = ()
    """Any of these, canonical names of the catalogue; empty: no GPU."""
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
    """Of the project's owner: who pays and whose machines count as owned."""
    worker_count: int = 1
    region_id: str | None = None
    providers: tuple[str, ...] = ()
    only_owned: bool = False
    needs_image: bool = False
    port: int | None = None
    price_cap_microcredits_per_hour: int | None = None
    """What all workers together may cost at most; None: anything."""
    has_credits: bool = True
    """Whose payer has none left starts nothing that costs."""
    spot: SpotPolicy = SpotPolicy.ALLOWED
    fails_on_quota: bool = False
    """Where its cloud grants no more of what it would get, it fails and goes nowhere else."""

    @property
    def disk_bytes(self) -> int:
        return self.disk_size_gb * GB


class PendingJob(Contract):
    """A job that waits, as the rules see it."""

    job_id: str
    project_id: str
    priority: int = 3
    """1 first, 5 last."""
    waiting_since: datetime
    """When it was submitted, or started again: its place in the queue."""
    attempt: int
    demand: Demand


class GpuSlot(Contract):
    index: int
    uuid: str
    free: bool = True


class NodeOffer(Contract):
    """An owned node as the rules see it: what it has and what of it is free now."""

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
    """Canonical name of the catalogue, or the driver's name when it has no entry."""
    gpus: tuple[GpuSlot, ...] = ()
    cpu_count: int
    free_cpu_count: int
    memory_bytes: int
    free_memory_bytes: int
    free_disk_bytes: int
    used_ports: tuple[int, ...] = ()
    runtimes: tuple[str, ...] = ("process",)
    trusted_only: bool = False
    microcredits_per_gpu_hour: int = 0
    microcredits_per_cpu_core_hour: int = 0
    preferred: bool = False
    """Of a provider that comes before all others while its credits last."""


class CloudOffer(Contract):
    """One machine type that an account's cloud region sells, in any of its zones, at one price."""

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
    """In the order in which they are tried; without boot disks, as the price here."""
    microcredits_per_hour: int
    """Of the machine, which its cloud bills to the account: a price from a dated list. Its boot
    disk comes on top, as large as the job wants it."""
    disk_microcredits_per_gb_month: int = 0
    price_read_on: date | None = None
    """How old that price is."""
    fee: UsageRates
    """What one worker there costs beside it, which is ours."""

    def disk_microcredits_per_hour(self, disk_size_gb: int) -> int:
        """Of a boot disk of that size."""
        return disk_microcredits_per_hour(disk_size_gb, self.disk_microcredits_per_gb_month)


class WorkerSlot(Contract):
    worker: int
    node_id: str
    gpu_indices: tuple[int, ...] = ()


class Assignment(Contract):
    """All workers of one job, to be reserved together."""

    job_id: str
    slots: tuple[WorkerSlot, ...]


class Burst(Contract):
    """All workers of one job, each of which has a machine made for it alone, all alike."""

    job_id: str
    offer_id: str
    zones: tuple[MachineOffer, ...]
    """Those of the offer that are not known to have none, in the order in which they are tried."""


class Refusal(Contract):
    """Why one offer was not taken for one job: a stable code, and a sentence with numbers."""

    offer_id: str
    """The node's id, a cloud offer's, a region's, or `none` when there was nothing to look at."""
    region_id: str | None = None
    code: str
    """Of nodes: `inactive`, `not-owned`, `wrong-region`, `gpu-type`, `gpu-count`, `cpu`, `memory`,
    `disk`, `price`, `credits`, `image`, `port`, `provider`, `workers`, `reserved`, `no-offers`.
    Of clouds also: `cpu-only`, `spot`, `shortage`, `quota`. `being-made`: it is taken, and its
    machine is on its way. `machine`: that has come to nothing."""
    detail: str
    ever: bool = True
    """False: no freed capacity will change it (the node is too small, the type is not there)."""


class JobRefusals(Contract):
    job_id: str
    refusals: tuple[Refusal, ...]


class Plan(Contract):
    assignments: tuple[Assignment, ...] = ()
    bursts: tuple[Burst, ...] = ()
    refused: tuple[JobRefusals, ...] = ()
    failed: tuple[JobRefusals, ...] = ()
    """Jobs that fail for these reasons, instead of waiting."""


class PlanningRound(Contract):
    """What one round of placement did."""

    placed: int = 0
    waiting: int = 0
    more: bool = False
    """More jobs wait than one round looks at: go on at once."""


class RankedOffer(Contract):
    """What has room now, in the order in which placement would take it: a node, or a machine that
    a cloud would make for each worker."""

    offer_id: str
    """The node's id, or the cloud offer's."""
    node_name: str = ""
    region_id: str
    region_name: str = ""
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
    microcredits_per_gpu_hour: int = 0
    microcredits_per_hour: int = 0
    """What one worker of the request costs here while it runs; of a cloud's, with its machine."""
    machine_type: str | None = None
    """Of a machine that would be made; None: a node that is there."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    """In the order in which they would be tried."""
    price_is_estimate: bool = False
    """From a dated list: the cloud's own bill counts."""
    price_read_on: date | None = None
    """The day of that list."""


class Ranking(Contract):
    placeable: bool
    """Whether all workers fit at this moment."""
    items: tuple[RankedOffer, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class PlacementRequest(Contract):
    """Input of `placement`."""
