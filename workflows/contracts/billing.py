"""Money: integer microcredits, 1 credit = 1 USD = 1,000,000 microcredits."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.nodes import NodeAddress

MICROCREDITS = 1_000_000
HOURS_PER_MONTH = 730
"""As clouds count them that price disks by the month.
Source: https://cloud.google.com/compute/disks-image-pricing."""


def disk_microcredits_per_hour(size_gb: int, microcredits_per_gb_month: int) -> int:
    return size_gb * microcredits_per_gb_month // HOURS_PER_MONTH


class UsageRates(Contract):
    """What one worker costs while it runs; fixed when the job is placed."""

    gpu_count: int = 0
    microcredits_per_gpu_hour: int = 0
    cpu_count: int = 0
    microcredits_per_cpu_core_hour: int = 0

    @property
    def microcredits_per_hour(self) -> int:
        return (
            self.gpu_count * self.microcredits_per_gpu_hour
            + self.cpu_count * self.microcredits_per_cpu_core_hour
        )


class WorkerUsage(Contract):
    """Seconds that a worker's command has run, as its supervisor measured them."""

    job_id: str
    worker: int
    attempt: int
    started_at: datetime
    """When the run was seen to start, the anchor of its hours and of its business keys."""
    through_s: int
    """Whole seconds from the start, all of them measured."""


class BillingRequest(Contract):
    """Input of `job/{id}/billing`."""

    job_id: str
    account_id: str
    attempt: int
    started_at: datetime
    workers: tuple["BilledWorker", ...]
    period_s: int = 3600
    resumed_microcredits: int = 0
    """What earlier runs of the workflow have posted, before it continued as new."""


class BilledWorker(Contract):
    worker: int
    run_id: str
    node: NodeAddress
    started_at: datetime


class BillingReport(Contract):
    job_id: str
    posted_microcredits: int


class BalanceForecast(Contract):
    """Where the payer stands after a posting."""

    posted_microcredits: int
    """What this call has posted; 0 when it had been posted before."""
    balance_microcredits: int
    burn_microcredits_per_hour: int
    """What all running jobs of the payer cost together."""
    unposted_microcredits: int = 0
    """What they must have used since by the clock: an estimate of when to look, never posted.
    Counted only where the credits may not last, else 0."""
    costs: bool = True
    """The job that was asked about costs something itself."""
    over: bool = False
    """The attempt has ended and its job has posted all: nothing is left to be metered."""

    @property
    def estimated_microcredits(self) -> int:
        """What is left of the balance by now, as far as anybody can tell without looking."""
        return self.balance_microcredits - self.unposted_microcredits

    @property
    def may_be_used_up(self) -> bool:
        """It is time to look: by the clock nothing is left for a job that costs."""
        return self.costs and self.estimated_microcredits <= 0 < self.burn_microcredits_per_hour

    @property
    def is_used_up(self) -> bool:
        """Nothing is left by what is posted: the job has to end."""
        return self.costs and self.balance_microcredits <= 0 < self.burn_microcredits_per_hour
